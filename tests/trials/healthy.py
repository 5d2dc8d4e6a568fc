"""Run jobs in which nothing is wrong, each with a `timeout` far shorter than its work, and print a Markdown table.

A case is wrong if a rank does not finish, or if the output has a failed rank.

    python tests/trials/healthy.py [--only compile] [--mode async] [--jobs 2]

`nox -s faults -- healthy` calls it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import os
import pdb  # noqa: T100 - a rank that stands at a breakpoint is a case.
import signal
import struct
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any
from unittest import mock

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from harness import STRATEGIES, find_pids, parser, run_cases
from hpu_core import HPUAccelerator
from hpu_testing import Program, machine_env
from training import make_strategy

_FSYNC, _LOAD = os.fsync, torch.load
# Seconds of the strategies' timeout, and of the work.
TIMEOUT, WORK = 10.0, 30.0
_RUN_LIMIT = 240.0


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        work: What takes long.
        strategy: Name of `make_strategy`; those with "_full" save one file.
        mode: "default", or "async" for simulated devices that run beside their hosts.
    """

    work: str
    strategy: str
    mode: str

    def measure(self, _: argparse.Namespace) -> dict[str, Any]:
        """Return how long the job took, what is wrong, and its output."""
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="healthy-") as name:
            folder = Path(name)
            variables = machine_env(2, folder, **({"HPU_SIM_ASYNC": "1"} if self.mode == "async" else {}))
            command = [sys.executable, str(Path(__file__).resolve()), "train", self.work, self.strategy, str(folder)]
            with Program(command, variables, folder) as program:
                if self.work == "the whole job is stopped":
                    threading.Thread(target=_stop_and_continue, args=(folder,), daemon=True).start()
                done = program.wait(_RUN_LIMIT)
        problems = [f"exit code {done.code}"] if done.code else []
        problems += [] if done.output.count("FINISHED") == 2 else ["not finished"]
        problems += ["a rank is named"] if "RankFailedError" in done.output or "aborting" in done.output else []
        cells = (self.work, self.strategy, self.mode, f"{time.monotonic() - start:.0f}")
        return {"cells": cells, "problems": problems, "output": done.output}


def _stop_and_continue(folder: Path) -> None:
    """Stop all ranks in the middle of a training for the time of the work."""
    while not (folder / "training").exists():
        time.sleep(0.1)
    pids = find_pids(folder)
    for signum in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            os.kill(pid, signum)
        time.sleep(WORK)


def _work(seconds: float = WORK) -> None:
    time.sleep(seconds)


def _slow_fsync(number: int) -> None:
    _work(WORK / 10)
    _FSYNC(number)


def _slow_load(*args: Any, **kwargs: Any) -> Any:
    """Load, on rank 0 after the time of the work."""
    mock.patch.object(torch, "load", _LOAD).start()
    _work(WORK if os.environ.get("LOCAL_RANK", "0") == "0" else 0)
    return _LOAD(*args, **kwargs)


# Instructions of filters of seccomp: load the number of a call, allow it, or return an error.
_LOAD_NUMBER, _ALLOW, _ERRNO = (0x20, 0, 0, 0), (0x06, 0, 0, 0x7FFF0000), 0x00050000
_FILTERS = {
    "no pidfd_open": (_LOAD_NUMBER, (0x15, 0, 1, 434), (0x06, 0, 0, _ERRNO | errno.ENOSYS), _ALLOW),
    # vfork, fork, and clone without CLONE_THREAD.
    "fork fails": (
        _LOAD_NUMBER,
        (0x15, 4, 0, 58),
        (0x15, 3, 0, 57),
        (0x15, 0, 3, 56),
        (0x20, 0, 0, 16),
        (0x45, 1, 0, 0x10000),
        (0x06, 0, 0, _ERRNO | errno.EAGAIN),
        _ALLOW,
    ),
}


def _install_filter(code: tuple[tuple[int, int, int, int], ...]) -> None:
    """Have the kernel refuse calls to all threads of this process and to its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    program = struct.pack("HP", len(code), ctypes.addressof(instructions))
    # PR_SET_NO_NEW_PRIVS, and seccomp with SECCOMP_SET_MODE_FILTER and SECCOMP_FILTER_FLAG_TSYNC.
    if libc.prctl(38, 1, 0, 0, 0) or libc.syscall(317, 1, 1, program):
        raise OSError(ctypes.get_errno(), "seccomp")


def _in_step(work: str, rank: int, batch: int, folder: Path) -> None:
    if (work, batch) == ("compile", 0) or (work, batch, rank) == ("one rank compiles", 1, 0):
        _work()
    if (work, batch) == ("the whole job is stopped", 1):
        (folder / "training").touch()
        _work(5)
    if (work, batch) == ("fork fails", 0):
        _install_filter(_FILTERS[work])
        with contextlib.suppress(BlockingIOError):
            raise RuntimeError(f"the filter lets a process start: {Popen([sys.executable, '-V'])}")


def _between_steps(work: str, module: Any) -> None:
    is_first = module.global_rank == 0
    if work == "all plot" or (work == "one rank downloads first" and is_first):
        _work()
    if work == "one rank downloads first":
        module.trainer.strategy.barrier()
    if work == "group with its own timeout":
        group = torch.distributed.new_group(backend="gloo", timeout=timedelta(hours=2))
        _work(WORK if is_first else 0)
        torch.distributed.barrier(group)
    if work == "a breakpoint" and is_first:
        reading, writing = os.pipe()
        threading.Timer(WORK, os.write, (writing, b"continue\n")).start()
        with os.fdopen(reading) as typed:
            pdb.Pdb(stdin=typed, stdout=sys.stdout).set_trace()
    end = time.monotonic() + WORK * (work == "one rank computes in a callback" and is_first)
    while time.monotonic() < end:
        sorted(range(1000), key=lambda number: -number)
        sum(number * number for number in range(1000))


class Model(BoringModel):
    """Model that works for long in one place."""

    def __init__(self, work: str, folder: Path) -> None:
        super().__init__()
        self.work, self.folder = work, folder

    def configure_optimizers(self) -> Any:
        # With a state to save and load.
        return torch.optim.Adam(self.parameters())

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            fully_shard(self.layer, mesh=self.trainer.strategy.device_mesh["data_parallel"])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        _in_step(self.work, self.global_rank, batch_idx, self.folder)
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 1:
            _between_steps(self.work, self)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        if self.work == "one rank validates longer" and self.global_rank == 0:
            _work(WORK / 6)
        return super().validation_step(batch, batch_idx)


def train(work: str, strategy_name: str, folder: Path) -> None:
    """Train two ranks for some steps, of which one does the work."""
    options = argparse.Namespace(strategy=strategy_name, api="Trainer", timeout=TIMEOUT, devices=2)
    last, saves = folder / "last.ckpt", work in {"slow save", "slow load"}
    if work == "no pidfd_open":
        _install_filter(_FILTERS[work])
    if work == "slow save":
        mock.patch.object(os, "fsync", _slow_fsync).start()
    for run in range(2 if work in {"slow load", "two Trainers in turn"} else 1):
        trainer = pl.Trainer(
            accelerator=HPUAccelerator(),
            strategy=make_strategy(options),
            devices=2,
            max_steps=5 * (run + 1),
            limit_val_batches=8 if "validates" in work else 0,
            logger=False,
            callbacks=[ModelCheckpoint(folder, save_last=True)] if saves else [],
            enable_checkpointing=saves,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        if work == "slow load" and run == 1:
            mock.patch.object(torch, "load", _slow_load).start()
        trainer.fit(Model(work, folder), ckpt_path=last if saves and run == 1 else None)
        if work == "two Trainers in turn":
            _work()
    os.write(1, b"FINISHED\n")


_WORKS = (
    "compile",
    "one rank compiles",
    "all plot",
    "one rank downloads first",
    "group with its own timeout",
    "one rank computes in a callback",
    "one rank validates longer",
    "a breakpoint",
    "no pidfd_open",
    "fork fails",
    "slow save",
    "slow load",
    "the whole job is stopped",
    "two Trainers in turn",
)
CASES = [
    Case(work, strategy, mode)
    for mode in ("default", "async")
    for strategy in (*STRATEGIES, "fsdp_full", "fsdp2", "fsdp2_full", "fsdp-async", "deepspeed-async")
    for work in _WORKS
    if strategy == "ddp" or work in {"slow save", "slow load"}
]


def main() -> int:
    """Run all cases, print a row for each, and return 1 if one has a problem."""
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
        return 0
    columns = ("work", "strategy", "devices", "seconds")
    names = {"only": "work", "strategy": "strategy", "mode": "mode"}
    return run_cases(parser(__doc__), CASES, Case.measure, *columns, **names)


if __name__ == "__main__":
    sys.exit(main())
