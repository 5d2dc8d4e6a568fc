"""Tests of requeueing by SLURM: a signal announces the end of a job, and Lightning saves and requeues it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpu_testing.modules import Classifier, make_loader

_SIGNALLED_BEFORE = 2


class _Signalled(Classifier):
    """Classifier that gets the signal before a batch, and records the step at which training started."""

    first_step = -1

    def on_train_start(self) -> None:
        self.first_step = self.trainer.global_step

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        if self.first_step == 0 and index == _SIGNALLED_BEFORE:
            signal.raise_signal(signal.SIGUSR1)


@pytest.fixture
def requeue_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run as a SLURM job with a fake `scontrol`, and return the file that it writes its arguments to."""
    log = tmp_path / "log"
    folder = tmp_path / "slurm"
    folder.mkdir()
    program = folder / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    return log


# The signal arrives in the middle of an epoch, where Lightning warns that data may be repeated.
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_a_signal_requeues_the_job_which_resumes(trainer: Callable[..., Any], requeue_log: Path) -> None:
    """Lightning finds the checkpoint without an argument."""
    trainer().fit(_Signalled(), make_loader())
    module = _Signalled()
    trainer().fit(module, make_loader())

    assert requeue_log.read_text() == "requeue 4711\n"
    assert module.first_step == _SIGNALLED_BEFORE
