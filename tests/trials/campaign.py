"""Run trainings of two ranks that fail at random moments, and print one table.

A run trains on simulated cards in a small tmpfs of its own, and fails in one way at a random moment of set-up,
training, validation, saving or teardown. A few runs in a row resume from what the one before left, and a last one,
without a fault, finishes the training. Each run is checked:

- ended: every process ends within the limit, without help.
- named: the output names the cause, unless the training finished.
- clean: after the last run no process, lock of a card, partial checkpoint or temporary file of ours is left.
- resumed: the last run has the loss and the weights of an undisturbed one, bit for bit.

The last two count for every fault of the row of runs.

    python tests/trials/campaign.py [--runs 500] [--jobs 3] [--seed 0] [--seconds 3600]

`nox -s campaign` calls it. It needs the rights to mount a tmpfs and to set the clock of the machine, which jumps by
five minutes and back.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_testing import CompletedProgram, Program, machine_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PROGRAM = Path(__file__).with_name("training.py")
_STRATEGIES = ("ddp", "fsdp", "deepspeed")
_EPOCHS = 10
# Calls of the phase's hook in two epochs, which are left in every run of a row.
_PHASES = {"setup": 1, "train": 8, "validate": 4, "save": 2, "teardown": 1}
_ROW = 4
_MAX_DELAY = 0.3
_TIMEOUT = 60.0
# From the failure to the end of the last process: the strategy's timeout, and what a busy machine adds.
_LIMIT = 1.75 * _TIMEOUT
# A stopped launcher; the other rank has timed out by then.
_CONTINUE_AFTER = 1.2 * _TIMEOUT
_RUN_LIMIT = 300.0
# Enough for the checkpoints, and soon full.
_DISK = "64m"

_CHECKS = ("ended", "named", "clean", "resumed")
_EXITED = (
    r"rank \d.*(exited|failed|its connections are closed|its store closed|has not answered)|"
    r"rank(s \d,)? \d did not join|which launched this rank, exited|no progress for \d+ s|found no rank 0"
)
# What training.py adds to the clock, in seconds.
_CLOCK_JUMPS = {"clock forward": 300, "clock back": -300}
_CAUSES = {
    "killed": _EXITED,
    "terminated": _EXITED + "|SIGTERM|signal 15",
    "stopped": (
        r"rank \d.*(made no progress|has sent no heartbeat|has not answered) for \d+ s|rank(s \d,)? \d did not join"
    ),
    "worker killed": r"DataLoader worker \(pid(\(s\))?.*(killed by signal|exited unexpectedly)",
    "disk full": r"No space left on device",
    "read-only": r"Read-only file system",
    "out of memory": r"HPU out of memory \(simulated\)",
    "host out of memory": _EXITED + r"|MemoryError|std::bad_alloc|allocate memory",
    # No error is right: the training goes on.
    **dict.fromkeys(_CLOCK_JUMPS, r"(?!)"),
}


@dataclass(frozen=True)
class Case:
    """One failure.

    Attributes:
        strategy: Name of the strategy.
        fault: What fails.
        phase: When it fails.
        rank: Which rank fails; rank 0 is the launcher of the other.
        call: Which call of the phase's hook precedes the failure.
        delay: Seconds from the hook to the failure.
    """

    strategy: str
    fault: str
    phase: str
    rank: int
    call: int
    delay: float

    @property
    def options(self) -> list[str]:
        """Arguments of the program."""
        names = ("strategy", "fault", "phase", "rank", "call", "delay")
        return [part for name in names for part in (f"--{name}", str(getattr(self, name)))]


def draw(random_: random.Random, index: int, faults: Sequence[str]) -> list[Case]:
    """Return a row of random cases of one strategy; strategies and faults take turns."""
    cases = []
    for position in range(_ROW):
        # Nothing follows teardown.
        phases = list(_PHASES)[: None if position == _ROW - 1 else -1]
        phase = random_.choice(phases)
        cases.append(
            Case(
                strategy=_STRATEGIES[index % len(_STRATEGIES)],
                fault=faults[(index // len(_STRATEGIES) * _ROW + position) % len(faults)],
                phase=phase,
                rank=random_.randrange(2),
                call=random_.randrange(_PHASES[phase]),
                delay=round(random_.choice([0.0, random_.uniform(0, _MAX_DELAY)]), 3),
            )
        )
    return cases


@contextlib.contextmanager
def _disk() -> Iterator[Path]:
    """Mount a small disk."""
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        _mount(f"size={_DISK}", Path(folder))
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def _train(disk: Path, folder: Path, options: list[str]) -> CompletedProgram:
    (folder / "tmp").mkdir(exist_ok=True)
    variables = machine_env(
        2,
        folder / "machine",
        FAULT_FILE=str(folder / "fault"),
        CONTINUE_AFTER=str(_CONTINUE_AFTER),
        TMPDIR=str(folder / "tmp"),
        PYTHONWARNINGS="ignore",
    )
    command = [sys.executable, str(_PROGRAM), "--checkpoints", "--epochs", str(_EPOCHS), "--workers", "1"]
    with Program([*command, "--timeout", str(_TIMEOUT), *options], variables, disk) as program:
        return program.wait(_RUN_LIMIT)


def _results(disk: Path) -> dict[str, tuple[str, float | None]]:
    """Return the weights and the last loss of each rank that finished."""
    results = {}
    for file in disk.glob("rank-*.json"):
        result = json.loads(file.read_text(encoding="utf-8"))
        results[file.stem] = result["weights"], result["loss"]
        file.unlink()
    return results


def run(cases: list[Case], expected: dict[str, tuple[str, float | None]]) -> tuple[list[list[str]], str]:
    """Run a row of cases; return what is not as promised of each, and the output."""
    problems: list[list[str]] = []
    outputs = []
    with _disk() as disk, tempfile.TemporaryDirectory(prefix="campaign-") as name:
        folder = Path(name)
        for case in cases:
            (folder / "fault").unlink(missing_ok=True)
            failed = _train(disk, folder, case.options)
            ended = time.monotonic()
            problems.append(_judge(case, failed, folder / "fault", ended, has_result=any(disk.glob("rank-*.json"))))
            if case.fault in _CLOCK_JUMPS and (folder / "fault").exists():
                time.clock_settime(time.CLOCK_REALTIME, time.time() - _CLOCK_JUMPS[case.fault])
            outputs.append(f"{case}\n{failed.output}")
            _mount("remount,rw", disk)
            # A result on a full disk may be empty.
            for file in (*disk.glob("filler"), *disk.glob("rank-*.json")):
                file.unlink()
        last = _train(disk, folder, ["--strategy", cases[0].strategy])
        outputs.append(f"without a fault\n{last.output}")
        results = _results(disk)
        common = []
        if last.code != 0 or not _equal(results, expected):
            common.append(f"resumed: exit code {last.code}, {results} instead of {expected}")
        left = [path.name for path in (*disk.rglob(".hpu-*"), *(folder / "tmp").glob("hpu-*"))]
        if left or last.leaked_pids:
            common.append(f"clean: {left}, {len(last.leaked_pids)} processes")
    return [each + common for each in problems], "\n".join(outputs)


def _judge(case: Case, failed: CompletedProgram, fault: Path, ended: float, *, has_result: bool) -> list[str]:
    problems = []
    seconds = ended - float(fault.read_text(encoding="ascii")) if fault.exists() else 0.0
    if failed.leaked_pids or seconds > _LIMIT:
        problems.append(f"ended: {len(failed.leaked_pids)} processes left, {seconds:.0f} s")
    # The rank that does not fail may have finished before the other fails.
    if "FINISHED" in failed.output or (case.phase == "teardown" and has_result):
        return problems
    if not re.search(_CAUSES[case.fault], failed.output):
        problems.append("named: the cause is not in the output")
    # A SIGTERM that all ranks agree upon is not a failure.
    if failed.code == 0 and not (case.fault == "terminated" and "Received SIGTERM" in failed.output):
        problems.append("named: exit code 0")
    return problems


def _mount(options: str, folder: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(command, check=True)


def _equal(results: dict[str, tuple[str, float | None]], expected: dict[str, tuple[str, float | None]]) -> bool:
    """Compare weights and losses; a training that had finished is resumed without a step, and has no loss."""
    return results.keys() == expected.keys() and all(
        weights == expected[rank][0] and loss in {expected[rank][1], None} for rank, (weights, loss) in results.items()
    )


def expected_results() -> dict[str, dict[str, tuple[str, float | None]]]:
    """Return what an undisturbed training prints, by strategy.

    Raises:
        RuntimeError: A training fails; the message has its output.
    """
    expected = {}
    for strategy in _STRATEGIES:
        with _disk() as disk, tempfile.TemporaryDirectory(prefix="campaign-") as folder:
            done = _train(disk, Path(folder), ["--strategy", strategy])
            expected[strategy] = _results(disk)
        if done.code != 0 or not expected[strategy]:
            raise RuntimeError(done.output)
    return expected


class Table:
    """Counts of what was as promised, by strategy and fault."""

    def __init__(self) -> None:
        self._counts: collections.Counter[tuple[str, str, str]] = collections.Counter()

    def add(self, case: Case, problems: list[str]) -> None:
        """Count a case."""
        self._counts[case.strategy, case.fault, "runs"] += 1
        for check in _CHECKS:
            is_kept = not any(problem.startswith(check) for problem in problems)
            self._counts[case.strategy, case.fault, check] += is_kept

    def show(self) -> None:
        """Print the counts."""
        print("\n| strategy | fault | runs | ended in time | cause named | nothing left | resumed equal |")
        print("|---|---|---|---|---|---|---|")
        for strategy, fault in sorted({key[:2] for key in self._counts}):
            cells = [self._counts[strategy, fault, check] for check in ("runs", *_CHECKS)]
            print(f"| {strategy} | {fault} | {' | '.join(map(str, cells))} |")


def main() -> int:
    """Run all cases, print the table, and return the number of runs with a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--faults", nargs="+", choices=_CAUSES, default=list(_CAUSES), metavar="FAULT")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time; each mostly waits for a timeout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first row, to continue a campaign")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no row after this time")
    parser.add_argument("--keep", type=Path, help="folder for the output of runs with a problem")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    expected = expected_results()
    table = Table()
    wrong = 0

    def run_row(index: int) -> tuple[int, list[Case], list[list[str]], str]:
        cases = draw(random.Random(options.seed * 1_000_003 + index), index, options.faults)
        if time.monotonic() > deadline:
            return index, [], [], ""
        return index, cases, *run(cases, expected[cases[0].strategy])

    indices = range(options.first, options.first + -(-options.runs // _ROW))
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(run_row, index) for index in indices]):
            index, cases, found, output = done.result()
            for case, problems in zip(cases, found, strict=True):
                wrong += bool(problems)
                table.add(case, problems)
                moment = f"{case.phase} {case.call} + {case.delay} s"
                print(
                    f"{index} {case.strategy}, {case.fault}, {moment}, rank {case.rank}: {problems or 'ok'}", flush=True
                )
            if any(found) and options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{options.seed}-{index}.log").write_text(output, encoding="utf-8")
    table.show()
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
