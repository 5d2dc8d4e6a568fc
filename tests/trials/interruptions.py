"""Interrupt a training of two ranks in every way and at every place, resume it, and print a Markdown table.

A cell has the seconds from the interruption to the end of the last process, and the last step that the Trainer has
saved; after SIGUSR1, a training goes on to its end. A run is counted as wrong if it takes longer than the limit, if a
process is left, if the output does not name the error, if a healthy rank does not finish the file that it writes, or if
the training that resumes from what is on the disk ends with another loss or other weights than one that was not
interrupted.

    python tests/trials/interruptions.py [--strategy ddp] [--api Trainer] [--only killed] [--phase save]

`nox -s faults -- interruptions` calls it. docs/records/interruptions.md has the table.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import APIS, STRATEGIES, Ended, Ranks, Scenario, Table, are_equal, keep_output, parser, results, train
from hpu_testing import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds in which all processes must have ended, and that a run may take.
_LIMIT, _RUN_LIMIT = 20.0, 600.0
# The call of the phase's hook at which a rank is interrupted: each is after the first checkpoint. The Trainer saves two
# files each time.
_CALLS = {"train": 5, "save": 2, "write": 5, "validate": 3}
_PHASES = {"train": "in a step", "save": "saving", "write": "in a callback that writes", "validate": "in validation"}
# Lines of a file that a callback has written to its end.
_LINES = 40
_NAMES = {"ddp": "DDP", "fsdp": "FSDP", "deepspeed": "DeepSpeed"}


@dataclass(frozen=True)
class Interruption(Scenario):
    """A way to interrupt a training.

    Attributes:
        title: For the table.
        saves: Whether the program saves after an error.
    """

    title: str = ""
    saves: bool = False


_RAISED = r"\[rank 1\] failed.*: ValueError: an error of the user's"
_INTERRUPTIONS = {
    "error": Interruption("raised", r"ValueError: an error of the user's", _LIMIT, 1, title="error in step"),
    "save": Interruption("raised", _RAISED, _LIMIT, 1, title="error, saved on exception", saves=True),
    "ctrl-c": Interruption("interrupted", "KeyboardInterrupt", _LIMIT, 1, title="Ctrl-C", saves=True),
    "sigterm": Interruption("terminated", "", _LIMIT, 1, exit_ok=True, title="SIGTERM"),
    "sigusr1": Interruption("requeued", "", _LIMIT, -1, exit_ok=True, title="SIGUSR1"),
    "killed": Interruption("killed", r"rank 1 \(pid \d+ on \S+\) exited", _LIMIT, 1, title="peer killed"),
}


@dataclass(frozen=True)
class Cell:
    """An interruption of a training.

    Attributes:
        strategy: "ddp", "deepspeed" or "fsdp".
        api: "Trainer" or "Fabric".
        phase: Where it is interrupted.
        how: The interruption.
    """

    strategy: str
    api: str
    phase: str
    how: Interruption

    def measure(self, keep: Path | None) -> tuple[str, list[str]]:
        """Interrupt the training and resume it; return the text of the cell, and what is not as promised."""
        expected = _train_undisturbed(self.strategy, self.api)
        with tempfile.TemporaryDirectory(prefix="interruptions-") as name:
            folder = Path(name)
            ended = self._interrupt(folder)
            problems = list(self._judge(ended, folder))
            steps = [
                int(step) for path in folder.glob("checkpoints/*") for step in re.findall(r"step=(\d+)", path.name)
            ]
            for path in (folder / "fault", *folder.glob("rank-*.json")):
                path.unlink(missing_ok=True)
            resumed = _train(self.strategy, self.api, folder)
            if any(resumed.codes):
                problems.append("not resumed")
            elif not are_equal(results(folder), expected):
                problems.append("another loss after resuming")
        if problems:
            title = f"{self.strategy}-{self.api}-{self.phase}-{self.how.title}"
            keep_output(keep, title, f"{problems}\n{ended.output}\n-- resumed --\n{resumed.output}")
        seconds = "-" if ended.seconds is None else f"{ended.seconds:.1f}"
        return seconds + (f" (step {max(steps)})" if steps else ""), problems

    def _interrupt(self, folder: Path) -> Ended:
        how = self.how
        call = 1 if (self.api, self.phase) == ("Fabric", "save") else _CALLS[self.phase]
        options = [f"--fault={how.fault}", f"--rank={how.rank}", f"--phase={self.phase}", f"--call={call}"]
        options += ["--save-on-exception"] if how.saves else []
        # Ranks agree on a batch by their heartbeats, and else the training would end before.
        options += ["--pause=1"] if how.exit_ok else []
        # A requeue is SLURM's, which starts each rank by itself.
        programs = _tasks(folder) if how.fault == "requeued" else [{}]
        return _train(self.strategy, self.api, folder, *options, programs=programs)

    def _judge(self, ended: Ended, folder: Path) -> Iterator[str]:
        how = self.how
        if ended.seconds is None:
            yield "not interrupted"
        # Lightning tears nothing down after a hook that raises, as a save does that needs the other ranks.
        yield from how.judge(ended, may_leave=how.saves and self.strategy != "ddp")
        if not re.search(how.error, ended.output):
            yield "error not named"
        if self.phase == "write":
            # Rank 1 is interrupted in the middle, except where a signal is handled later.
            ranks = (0, 1) if how.exit_ok else () if how.fault == "interrupted" else (0,)
            for rank in ranks:
                lines = (folder / f"rank-{rank}.txt").read_text(encoding="ascii").splitlines()
                if len(lines) != _LINES:
                    yield f"{len(lines)} of {_LINES} lines written by rank {rank}"


def _tasks(folder: Path) -> list[dict[str, Any]]:
    """Return how the ranks start as two tasks of a job of SLURM, whose `scontrol` does nothing."""
    scontrol = folder / "scontrol"
    scontrol.write_text("#!/bin/sh\n", encoding="ascii")
    scontrol.chmod(0o755)
    job = {"JOB_ID": "4711", "JOB_NAME": "trial", "NODEID": "0", "NODELIST": "127.0.0.1"}
    job |= {"NTASKS": "2", "NTASKS_PER_NODE": "2"}
    variables = {"MASTER_PORT": str(free_port()), "PATH": f"{folder}:{os.environ['PATH']}"}
    variables |= {f"SLURM_{name}": value for name, value in job.items()}
    ranks = [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)]
    return [{"variables": variables | rank} for rank in ranks]


def _train(strategy: str, api: str, folder: Path, *options: str, programs: Any = ({},)) -> Ended:
    """Train for 12 steps from the last checkpoint in the folder; validate and save every 4 steps."""
    options = (f"--strategy={strategy}", f"--api={api}", "--checkpoints", "--steps=12", "--every=4", *options)
    return train(folder, *options, limit=_RUN_LIMIT, programs=programs)


@cache
def _train_undisturbed(strategy: str, api: str) -> Ranks:
    """Return the results of a training that nothing interrupts."""
    with tempfile.TemporaryDirectory(prefix="interruptions-") as name:
        ended = _train(strategy, api, Path(name))
        if any(ended.codes):
            raise RuntimeError(ended.output)
        return results(Path(name))


def _measure(cell: Cell, keep: Path | None) -> tuple[str, list[str]]:
    # Fabric has no handler for a requeue.
    return ("-", []) if (cell.api, cell.how.fault) == ("Fabric", "requeued") else cell.measure(keep)


def main() -> int:
    """Run all cells, print a row for each interruption and place, and return 1 if a cell has a problem."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", choices=_INTERRUPTIONS, help="a way to interrupt")
    arguments.add_argument("--phase", choices=_PHASES, help="a place")
    arguments.add_argument("--jobs", type=int, default=1, help="trainings at the same time")
    # The session's name for this program.
    arguments.add_argument("program", nargs="?", choices=["interruptions"], help=argparse.SUPPRESS)
    options = arguments.parse_args()
    kinds = [
        (strategy, api)
        for api, strategy in itertools.product(APIS, STRATEGIES)
        if options.api in {None, api} and options.strategy in {None, strategy}
    ]
    heads = (f"{_NAMES[strategy]}, {api}" for strategy, api in kinds)
    table = Table("interruption", "where", *heads, "problems")
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda kind: _train_undisturbed(*kind), kinds))
        for (name, how), phase in itertools.product(_INTERRUPTIONS.items(), _PHASES):
            if options.only in {None, name} and options.phase in {None, phase}:
                cells = [Cell(*kind, phase, how) for kind in kinds]
                found = list(pool.map(lambda cell: _measure(cell, options.keep), cells))
                named = [f"{kind}: {each}" for kind, (_, many) in zip(kinds, found, strict=True) for each in many]
                table.add(how.title, _PHASES[phase], *(text for text, _ in found), problems=named)
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
