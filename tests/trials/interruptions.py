"""Interrupt a training of two ranks in every way and at every place, resume it, and print a Markdown table.

A row has the seconds from the interruption to the end of the last process, and the last step that the Trainer has
saved; after SIGUSR1, a training goes on to its end. A run is counted as wrong if it takes longer than the limit, if a
process is left, if the output does not name the error, or if the training that resumes from what is on the disk ends
with another loss or other weights than one that was not interrupted.

    python tests/trials/interruptions.py [--strategy ddp] [--api Trainer] [--only killed] [--phase save]

`nox -s faults -- interruptions --jobs 3` calls it, with HPU_SIM_ASYNC=1 for devices that run beside their hosts.
docs/records/interruptions.md sums it up.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import APIS, STRATEGIES, Ended, Scenario, are_equal, parser, results, run_cases, train, undisturbed
from hpu_testing import free_port

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

# Seconds in which all processes must have ended, and that a run may take.
_LIMIT, _RUN_LIMIT = 20.0, 600.0
# The call of the phase's hook at which a rank is interrupted: each is after the first checkpoint. The Trainer saves two
# files each time.
_CALLS = {"train": 5, "save": 2, "validate": 3}
_PHASES = {"train": "in a step", "save": "saving", "validate": "in validation"}


@dataclass(frozen=True)
class Interruption(Scenario):
    """A way to interrupt a training.

    Attributes:
        name: For the option that selects it.
        title: For the table.
        saves: Whether the program saves after an error.
    """

    name: str = ""
    title: str = ""
    saves: bool = False


_RAISED = r"\[rank 1\] failed.*: ValueError: an error of the user's"
_KILLED = r"rank 1 \(pid \d+ on \S+\) exited"
_INTERRUPTIONS = (
    Interruption("raised", r"ValueError: an error of the user's", _LIMIT, 1, name="error", title="error in step"),
    Interruption("raised", _RAISED, _LIMIT, 1, name="save", title="error, saved on exception", saves=True),
    Interruption("interrupted", "KeyboardInterrupt", _LIMIT, 1, name="ctrl-c", title="Ctrl-C", saves=True),
    Interruption("terminated", "", _LIMIT, 1, exit_ok=True, name="sigterm", title="SIGTERM"),
    Interruption("requeued", "", _LIMIT, -1, exit_ok=True, name="sigusr1", title="SIGUSR1"),
    Interruption("killed", _KILLED, _LIMIT, 1, name="killed", title="peer killed"),
)


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

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a training of 12 steps from the last checkpoint, with validation and checkpoint every 4 steps."""
        return (f"--strategy={self.strategy}", f"--api={self.api}", "--checkpoints", "--steps=12", "--every=4")

    def measure(self, _: argparse.Namespace) -> dict[str, Any]:
        """Interrupt the training and resume it; return what it took, what is not as promised, and the output."""
        expected = undisturbed(*self.options, limit=_RUN_LIMIT)
        with tempfile.TemporaryDirectory(prefix="interruptions-") as name:
            folder = Path(name)
            ended = self._interrupt(folder)
            problems = list(self._judge(ended))
            steps = [
                int(step) for path in folder.glob("checkpoints/*") for step in re.findall(r"step=(\d+)", path.name)
            ]
            for path in (folder / "fault", *folder.glob("rank-*.json")):
                path.unlink(missing_ok=True)
            resumed = train(folder, *self.options, limit=_RUN_LIMIT)
            if any(resumed.codes):
                problems.append("not resumed")
            elif not are_equal(results(folder), expected):
                problems.append("another loss after resuming")
        seconds = "-" if ended.seconds is None else f"{ended.seconds:.1f}"
        text = seconds + (f" (step {max(steps)})" if steps else "")
        row = (self.how.title, _PHASES[self.phase], self.strategy, self.api, text)
        return {"cells": row, "problems": problems, "output": f"{ended.output}\n-- resumed --\n{resumed.output}"}

    def _interrupt(self, folder: Path) -> Ended:
        how = self.how
        call = 1 if (self.api, self.phase) == ("Fabric", "save") else _CALLS[self.phase]
        options = [f"--fault={how.fault}", f"--rank={how.rank}", f"--phase={self.phase}", f"--call={call}"]
        options += ["--save-on-exception"] if how.saves else []
        # Ranks agree on a batch by their heartbeats, and else the training would end before.
        options += ["--pause=1"] if how.exit_ok else []
        # A requeue is SLURM's, which starts each rank by itself.
        programs = _tasks(folder) if how.fault == "requeued" else [{}]
        return train(folder, *self.options, *options, limit=_RUN_LIMIT, programs=programs)

    def _judge(self, ended: Ended) -> Iterator[str]:
        how = self.how
        if ended.seconds is None:
            yield "not interrupted"
        # Lightning tears nothing down after a hook that raises, as a save does that needs the other ranks.
        yield from how.judge(ended, may_leave=how.saves and self.strategy != "ddp")
        if not re.search(how.error, ended.output):
            yield "error not named"


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


CELLS = [
    Cell(strategy, api, phase, how)
    for how, phase, api, strategy in itertools.product(
        _INTERRUPTIONS, _PHASES, APIS, (*STRATEGIES, "fsdp-async", "deepspeed-async")
    )
    # Fabric has no handler for a requeue. Asynchronous saves are written beside the next steps, or when saved again.
    if (api, how.fault) != ("Fabric", "requeued") and (phase != "validate" or "async" not in strategy)
]


def main() -> int:
    """Run all cells, print a row for each, and return 1 if one has a problem."""
    columns = ("interruption", "where", "strategy", "API", "seconds (step)")
    names = {"strategy": "strategy", "api": "api", "only": "how.name", "phase": "phase"}
    return run_cases(parser(__doc__), CELLS, Cell.measure, *columns, **names)


if __name__ == "__main__":
    sys.exit(main())
