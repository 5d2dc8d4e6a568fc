"""Interrupt a training of two ranks in every way and at every place, resume it, and print a Markdown table.

Seconds count from the interruption to the end of the last process; after SIGUSR1, a training goes on to its end. A run
is counted as wrong if it takes longer than the limit, if a process is left, if the output does not name the error, if a
healthy rank does not finish the file that it writes, or if the training that resumes from what is on the disk ends with
another loss or other weights than one that was not interrupted.

    python tests/trials/interruptions.py [--strategy ddp] [--api Trainer] [--only killed] [--json cells.json]

`nox -s faults -- interruptions` calls it. `--record` writes docs/records/interruptions.md from the rows so far.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import STRATEGIES, Ended, Ranks, Table, are_equal, finish, keep_output, results, start
from hpu_testing import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_APIS = ("Trainer", "Fabric")
_RANKS = 2
# Steps of a training, and from one validation and checkpoint to the next.
_STEPS, _EVERY = 12, 4
# Seconds in which all processes must have ended, and that a run may take.
_LIMIT, _RUN_LIMIT = 20.0, 600.0
# The call of the phase's hook at which a rank is interrupted: each is after the first checkpoint. The Trainer saves two
# files each time.
_CALLS = {"train": 5, "validate": 3, "save": 2, "write": 5}
_PHASES = {"train": "in a step", "save": "saving", "write": "in a callback that writes", "validate": "in validation"}
# Seconds that a step takes longer where ranks handle a signal.
_PAUSE = 1.0
# Lines of a file that a callback has written to its end.
_LINES = 40
_NAMES = {"ddp": "DDP", "fsdp": "FSDP", "deepspeed": "DeepSpeed"}
_RECORD = """# Interruptions

How a training ends that is interrupted, and what a training that resumes makes of what is on the disk.
[Failures](failures.md) has more ways to fail, and [long runs](long-runs.md) failures at random moments.

{date}, `nox -s faults -- interruptions`, simulated: two ranks on one machine, one run of each, on two CPU cores that
ran other programs as well; {ran} of 132 cells ran, and "-" did not. FSDP saves sharded checkpoints, DeepSpeed is in
stage 2. A training of 12 steps validates and saves every 4 steps, and rank 1 is interrupted in its sixth step, in the
second validation, before the second checkpoint, or while it writes a file for 4 s. SIGINT and SIGUSR1 reach all ranks;
Fabric has no handler for SIGUSR1. After Ctrl-C, and in the second row of errors, the program saves again, as
`ModelCheckpoint(save_on_exception=True)` does, or a loop of Fabric that catches the error.

A cell has the seconds from the interruption to the end of the last process (for SIGUSR1, to the end of the training,
which goes on), and the last step that the Trainer has saved. In each cell without another note, all processes ended,
the output named the error, a healthy rank had finished the file that it wrote, and the training that resumed had the
loss and the weights of one that was not interrupted, bit for bit.

After an error, FSDP and DeepSpeed save nothing with the Trainer, and say that a checkpoint needs all ranks. Lightning
then tears nothing down, so that the watchdog's threads end with the process. After Ctrl-C, rank 0 saves unless a
collective holds it for 5 s, after which it is ended.
"""
_SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NAME": "trial",
    "SLURM_NODEID": "0",
    "SLURM_NODELIST": "127.0.0.1",
    "SLURM_NTASKS": str(_RANKS),
    "SLURM_NTASKS_PER_NODE": str(_RANKS),
}


@dataclass(frozen=True)
class Interruption:
    """A way to interrupt a training.

    Attributes:
        title: For the table.
        fault: Value of the program's `--fault`.
        error: Pattern in the output.
        rank: The rank that is interrupted; -1 for all.
        exit_ok: Whether all ranks end with exit code 0.
        saves: Whether the program saves after an error.
    """

    title: str
    fault: str
    error: str
    rank: int = 1
    exit_ok: bool = False
    saves: bool = False


_RAISED = r"\[rank 1\] failed.*: ValueError: an error of the user's"
_INTERRUPTIONS = {
    "error": Interruption("error in step", "raised", r"ValueError: an error of the user's"),
    "save": Interruption("error, saved on exception", "raised", _RAISED, saves=True),
    "ctrl-c": Interruption("Ctrl-C", "interrupted", "KeyboardInterrupt", saves=True),
    "sigterm": Interruption("SIGTERM", "terminated", "", exit_ok=True),
    "sigusr1": Interruption("SIGUSR1", "requeued", "", rank=-1, exit_ok=True),
    "killed": Interruption("peer killed", "killed", r"rank 1 \(pid \d+ on \S+\) exited"),
}


@dataclass(frozen=True)
class Cell:
    """An interruption of a training.

    Attributes:
        strategy: "ddp", "deepspeed" or "fsdp".
        api: "Trainer" or "Fabric".
        phase: Where it is interrupted.
        interruption: How.
    """

    strategy: str
    api: str
    phase: str
    interruption: Interruption

    def run(self, folder: Path) -> Ended:
        """Run the training once."""
        how = self.interruption
        call = 1 if (self.api, self.phase) == ("Fabric", "save") else _CALLS[self.phase]
        options = ["--fault", how.fault, "--rank", str(how.rank), "--phase", self.phase, "--call", str(call)]
        options += ["--save-on-exception"] if how.saves else []
        # Ranks agree on a batch by their heartbeats, and else the training would end before.
        options += ["--pause", str(_PAUSE)] if how.exit_ok else []
        return _train(self.strategy, self.api, folder, *options, as_tasks=how.fault == "requeued")

    def judge(self, ended: Ended, folder: Path) -> Iterator[str]:
        """Yield what is not as promised."""
        how = self.interruption
        if ended.seconds is None:
            yield "not interrupted"
        elif ended.seconds > _LIMIT:
            yield f"{ended.seconds:.0f} s"
        if ended.leaked:
            yield "processes left"
        # Lightning tears nothing down after a hook that raises, as a save does that needs the other ranks.
        if "LEFT" in ended.output and not (how.saves and self.strategy != "ddp"):
            yield "threads or variables left"
        if any(ended.codes) is how.exit_ok:
            yield f"exit codes {list(ended.codes)}"
        if not re.search(how.error, ended.output):
            yield "error not named"
        if self.phase == "write":
            # Rank 1 is interrupted in the middle, except where a signal is handled later.
            ranks = (0, 1) if how.exit_ok else () if how.fault == "interrupted" else (0,)
            for rank in ranks:
                lines = (folder / f"rank-{rank}.txt").read_text(encoding="ascii").splitlines()
                if len(lines) != _LINES:
                    yield f"{len(lines)} of {_LINES} lines written by rank {rank}"


def _train(strategy: str, api: str, folder: Path, *options: str, as_tasks: bool = False) -> Ended:
    """Train, from the last checkpoint in the folder; `as_tasks` starts each rank as a task of SLURM."""
    (folder / "fault").unlink(missing_ok=True)
    options = ("--strategy", strategy, "--api", api, "--checkpoints", *options)
    options += ("--steps", str(_STEPS), "--every", str(_EVERY))
    ranks: list[dict[str, str]] = [{}]
    if as_tasks:
        scontrol = folder / "scontrol"
        scontrol.write_text("#!/bin/sh\n", encoding="ascii")
        scontrol.chmod(0o755)
        job = {**_SLURM, "MASTER_PORT": str(free_port()), "PATH": f"{folder}:{os.environ['PATH']}"}
        ranks = [{**job, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(_RANKS)]
    with ExitStack() as stack:
        programs = [stack.enter_context(start(folder, *options, variables=variables)) for variables in ranks]
        return finish(folder, programs, _RUN_LIMIT)


@cache
def _train_undisturbed(strategy: str, api: str) -> Ranks:
    """Return the results of a training that nothing interrupts."""
    with tempfile.TemporaryDirectory(prefix="interruptions-") as name:
        ended = _train(strategy, api, Path(name))
        if any(ended.codes):
            raise RuntimeError(ended.output)
        return results(Path(name))


def _measure(cell: Cell, keep: Path | None) -> dict[str, Any]:
    """Run a cell and resume it; return the row."""
    expected = _train_undisturbed(cell.strategy, cell.api)
    with tempfile.TemporaryDirectory(prefix="interruptions-") as name:
        folder = Path(name)
        ended = cell.run(folder)
        problems = list(cell.judge(ended, folder))
        saved = [*folder.glob("checkpoints/*"), *folder.glob("hpc_ckpt*"), *folder.glob("interrupted.ckpt")]
        disk = sorted(path.name for path in saved if path.exists())
        for path in folder.glob("rank-*.json"):
            path.unlink()
        resumed = _train(cell.strategy, cell.api, folder)
        is_equal = are_equal(results(folder), expected)
        if any(resumed.codes) or not is_equal:
            problems.append("not resumed" if any(resumed.codes) else "another loss after resuming")
        if problems:
            title = f"{cell.strategy}-{cell.api}-{cell.phase}-{cell.interruption.title}"
            keep_output(keep, title, f"{problems}\n{ended.output}\n-- resumed --\n{resumed.output}")
    return {
        "strategy": cell.strategy,
        "api": cell.api,
        "interruption": cell.interruption.title,
        "phase": _PHASES[cell.phase],
        "seconds": None if ended.seconds is None else round(ended.seconds, 1),
        "codes": ended.codes,
        "date": str(datetime.now(tz=timezone.utc).date()),
        "disk": ", ".join(disk),
        "equal": is_equal,
        "problems": problems,
    }


def _cells(options: argparse.Namespace) -> Iterator[Cell]:
    for phase, name, api, strategy in itertools.product(_PHASES, _INTERRUPTIONS, _APIS, STRATEGIES):
        selected = {"strategy": strategy, "api": api, "only": name, "phase": phase}
        # Fabric has no handler for a requeue.
        if (api, name) != ("Fabric", "sigusr1") and all(
            getattr(options, key) in {None, value} for key, value in selected.items()
        ):
            yield Cell(strategy, api, phase, _INTERRUPTIONS[name])


def _write_record(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a page of the documentation with a table for each strategy."""
    columns = [(api, strategy) for api in _APIS for strategy in STRATEGIES]
    found = {(row["interruption"], row["phase"], row["api"], row["strategy"]): row for row in rows}
    lines = [_RECORD.format(date=" and ".join(sorted({row["date"] for row in rows})), ran=len(rows)).rstrip(), ""]
    heads = [f"{_NAMES[strategy]}, {api}" for api, strategy in columns]
    lines += [f"| interruption | where | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for how, where in itertools.product(_INTERRUPTIONS.values(), _PHASES.values()):
        cells = [_describe(found.get((how.title, where, *column))) for column in columns]
        lines.append(f"| {how.title} | {where} | {' | '.join(cells)} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _describe(row: Mapping[str, Any] | None) -> str:
    """Return a cell of the record: seconds, and the last checkpoint that is on the disk, or what went wrong."""
    if row is None:
        return "-"
    if row["problems"]:
        return f"{row['seconds']}: {', '.join(row['problems'])}"
    steps = [int(step) for step in re.findall(r"step=(\d+)", row["disk"])]
    return f"{row['seconds']}" + (f" (step {max(steps)})" if steps else "")


def main() -> int:
    """Run all cells, print a row for each, and return 1 if one has a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES)
    parser.add_argument("--api", choices=_APIS)
    parser.add_argument("--only", choices=_INTERRUPTIONS, help="a way to interrupt")
    parser.add_argument("--phase", choices=_PHASES, help="a place")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--json", type=Path, help="file for the rows; those without a problem in it are kept")
    parser.add_argument("--keep", type=Path, help="folder for the output of runs with a problem")
    parser.add_argument("--record", type=Path, help="file for a page of the documentation; needs --json")
    # The session's name for this program.
    parser.add_argument("program", nargs="?", choices=["interruptions"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    columns = ("strategy", "API", "interruption", "where", "seconds", "on the disk", "loss equal", "problems")
    is_continued = options.json is not None and options.json.exists()
    rows = json.loads(options.json.read_text(encoding="utf-8")) if is_continued else []
    table = Table(*columns, file=options.json)
    cells = {(each.strategy, each.api, each.interruption.title, _PHASES[each.phase]): each for each in _cells(options)}
    done = [row for row in rows if not row["problems"]]
    for row in done:
        cells.pop((row["strategy"], row["api"], row["interruption"], row["phase"]), None)
    with ThreadPoolExecutor(options.jobs) as pool:
        kinds = dict.fromkeys((cell.strategy, cell.api) for cell in cells.values())
        list(pool.map(lambda kind: _train_undisturbed(*kind), kinds))
        for row in itertools.chain(done, pool.map(lambda cell: _measure(cell, options.keep), cells.values())):
            problems = row.pop("problems")
            cells_of_row = (row[name] for name in row if name not in {"codes", "date"})
            table.add(*cells_of_row, problems=problems, **row)
    if options.record is not None and options.json is not None:
        _write_record(options.record, json.loads(options.json.read_text(encoding="utf-8")))
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
