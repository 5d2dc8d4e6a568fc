"""SLURM tells a job by a signal that its time is over; Lightning saves the training and has the job queued again."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .modules import Classifier, loader

_SIGNALLED_BEFORE = 2


class _Signalled(Classifier):
    """Gets the signal before a batch, and knows with which step its training began."""

    began = -1

    def on_train_start(self) -> None:
        self.began = self.trainer.global_step

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        if self.began == 0 and index == _SIGNALLED_BEFORE:
            signal.raise_signal(signal.SIGUSR1)


@pytest.fixture
def queued_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process as a job of SLURM's, in whose place a program writes to the file returned what it is told."""
    told = tmp_path / "told"
    folder = tmp_path / "slurm"
    folder.mkdir()
    program = folder / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$@" >> "{told}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    return told


def test_the_signal_queues_the_job_again(trainer: Callable[..., Any], queued_again: Path) -> None:
    """Once, by its number."""
    trainer().fit(_Signalled(), loader())

    assert queued_again.read_text() == "requeue 4711\n"


# The signal comes in the middle of an epoch, of which Lightning says that data may come twice.
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
@pytest.mark.usefixtures("queued_again")
def test_the_job_goes_on_where_it_was(trainer: Callable[..., Any]) -> None:
    """The next start of it finds what was saved at the signal, without being told."""
    trainer().fit(_Signalled(), loader())
    module = _Signalled()
    trainer().fit(module, loader())

    assert module.began == _SIGNALLED_BEFORE
