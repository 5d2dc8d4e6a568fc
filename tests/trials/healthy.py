"""Run jobs in which nothing is wrong, each with a `timeout` far shorter than its work, and print a Markdown table.

A case is wrong if a rank does not finish, or if the output has a failed rank.

    python tests/trials/healthy.py [--only compile] [--mode async] [--jobs 2]

`nox -s faults -- healthy` calls it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel

from harness import STRATEGIES, Table, find_pids, parser, select_cases
from hpu_core import HPUAccelerator
from hpu_testing import Program, machine_env
from training import make_strategy

_FSYNC = os.fsync
# Seconds of the strategies' timeout, and of the work.
TIMEOUT, WORK = 10.0, 30.0
_RUN_LIMIT = 240.0


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        work: What takes long.
        strategy: "ddp", "fsdp" or "deepspeed".
        mode: "default", or "async" for simulated devices that run beside their hosts.
    """

    work: str
    strategy: str
    mode: str

    def run(self) -> tuple[str, list[str], str]:
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
        return f"{time.monotonic() - start:.0f}", problems, done.output


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
    _work(WORK / 3)
    _FSYNC(number)


def _in_step(work: str, rank: int, batch: int, folder: Path) -> None:
    if (work, batch) == ("compile", 0) or (work, batch, rank) == ("one rank compiles", 1, 0):
        _work()
    if (work, batch) == ("the whole job is stopped", 1):
        (folder / "training").touch()
        _work(5)


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
    end = time.monotonic() + WORK * (work == "one rank computes in a callback" and is_first)
    while time.monotonic() < end:
        sorted(range(1000), key=lambda number: -number)
        sum(number * number for number in range(1000))


class Model(BoringModel):
    """Model that works for long in one place."""

    def __init__(self, work: str, folder: Path) -> None:
        super().__init__()
        self.work, self.folder = work, folder

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
    options = argparse.Namespace(strategy=strategy_name, api="Trainer", timeout=TIMEOUT)
    if "save" in work:
        mock.patch.object(os, "fsync", _slow_fsync).start()
    for _ in range(2 if work == "two Trainers in turn" else 1):
        trainer = pl.Trainer(
            accelerator=HPUAccelerator(),
            strategy=make_strategy(options),
            devices=2,
            max_steps=5,
            limit_val_batches=8 if "validates" in work else 0,
            logger=False,
            callbacks=[ModelCheckpoint(folder, save_last=True)] if "save" in work else [],
            enable_checkpointing="save" in work,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Model(work, folder))
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
    "slow save",
    "the whole job is stopped",
    "two Trainers in turn",
)
CASES = [
    Case(work, strategy, mode)
    for mode in ("default", "async")
    for strategy in (*STRATEGIES, "fsdp-async", "deepspeed-async")
    for work in _WORKS
    if strategy == "ddp" or "save" in work
]


def main() -> int:
    """Run all cases, print a row for each, and return 1 if one has a problem."""
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
        return 0
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=1, help="cases at the same time")
    # The session's name for this program.
    arguments.add_argument("program", nargs="?", choices=["healthy"], help=argparse.SUPPRESS)
    options, cases = select_cases(arguments, CASES, only="work", strategy="strategy", mode="mode")
    table = Table("work", "strategy", "devices", "seconds", options=options)
    with ThreadPoolExecutor(options.jobs) as pool:
        for case, (seconds, problems, output) in zip(cases, pool.map(Case.run, cases), strict=True):
            table.add(case.work, case.strategy, case.mode, seconds, problems=problems, output=output)
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
