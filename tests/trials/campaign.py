"""Run trainings of two ranks that fail at random moments, and print a row for each failure, then their numbers.

A run trains on simulated cards in a small tmpfs of its own, and fails in one way at a random moment of set-up,
training, validation, saving or teardown. The few runs of a series resume from what the one before left, and a
last one, without a fault, finishes the training. Each run is checked:

- ended: every process ends within the limit, without help.
- named: the output names the cause, unless the training finished.
- clean: after the last run no process, lock of a card, partial checkpoint or temporary file of ours is left.
- resumed: the last run has the loss and the weights of an undisturbed one, bit for bit.

The last two count for every fault of the series.

    python tests/trials/campaign.py [--runs 500] [--jobs 3] [--seed 0]

`nox -s campaign` calls it. It needs the rights to mount a tmpfs and to set the clock of the machine, which jumps by
five minutes and back.
"""

from __future__ import annotations

import collections
import contextlib
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness import STRATEGIES, Ended, Table, are_equal, parser, results, train, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_EPOCHS = 10
# Calls of the phase's hook in two epochs, which are left in every run of a series.
_PHASES = {"setup": 1, "train": 8, "validate": 4, "save": 2, "teardown": 1}
_SERIES = 4
_MAX_DELAY = 0.3
_TIMEOUT = 60.0
# From the failure to the end of the last process: the strategy's timeout, and what a busy machine adds.
_LIMIT = 1.75 * _TIMEOUT
# A stopped launcher; the other rank has timed out by then.
_CONTINUE_AFTER = 1.2 * _TIMEOUT
_RUN_LIMIT = 300.0
# Enough for the checkpoints, and soon full.
_DISK = "64m"

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
        return [f"--{name}={value}" for name, value in asdict(self).items()]


def draw(random_: random.Random, index: int, faults: Sequence[str]) -> list[Case]:
    """Return a series of random cases of one strategy; strategies and faults take turns."""
    cases = []
    for position in range(_SERIES):
        # Nothing follows teardown.
        phases = list(_PHASES)[: None if position == _SERIES - 1 else -1]
        phase = random_.choice(phases)
        cases.append(
            Case(
                strategy=STRATEGIES[index % len(STRATEGIES)],
                fault=faults[(index // len(STRATEGIES) * _SERIES + position) % len(faults)],
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


def _mount(options: str, folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def _options(strategy: str) -> tuple[str, ...]:
    return (f"--strategy={strategy}", "--checkpoints", f"--epochs={_EPOCHS}", "--workers=1", f"--timeout={_TIMEOUT}")


def _train(disk: Path, machine: Path, *options: str) -> Ended:
    (machine / "fault").unlink(missing_ok=True)
    (machine / "tmp").mkdir(exist_ok=True)
    variables = {"CONTINUE_AFTER": str(_CONTINUE_AFTER), "TMPDIR": str(machine / "tmp"), "PYTHONWARNINGS": "ignore"}
    program = {"machine": machine, "variables": variables}
    return train(disk, *options, limit=_RUN_LIMIT, programs=[program], fault=machine / "fault")


def run(cases: list[Case]) -> tuple[list[list[str]], str]:
    """Run a series of cases; return what is not as promised of each, and the output."""
    common = _options(cases[0].strategy)
    expected = undisturbed(*common, limit=_RUN_LIMIT)
    problems = []
    outputs = []
    with _disk() as disk, tempfile.TemporaryDirectory(prefix="campaign-") as name:
        machine = Path(name)
        for case in cases:
            ended = _train(disk, machine, *common, *case.options)
            problems.append(list(_judge(case, ended, has_result=any(disk.glob("rank-*.json")))))
            if ended.seconds is not None and case.fault in _CLOCK_JUMPS:
                time.clock_settime(time.CLOCK_REALTIME, time.time() - _CLOCK_JUMPS[case.fault])
            outputs.append(f"{case}\n{ended.output}")
            _mount("remount,rw", disk)
            # A result on a full disk may be empty.
            for file in (*disk.glob("filler"), *disk.glob("rank-*.json")):
                file.unlink()
        last = _train(disk, machine, *common)
        outputs.append(f"without a fault\n{last.output}")
        of_all = []
        if any(last.codes) or not are_equal(found := results(disk), expected):
            of_all.append(f"resumed: exit codes {last.codes}, {found} instead of {expected}")
        left = [path.name for path in (*disk.rglob(".hpu-*"), *(machine / "tmp").glob("hpu-*"))]
        if left or last.leaked:
            of_all.append(f"clean: {left}, {last.leaked} processes")
    return [each + of_all for each in problems], "\n".join(outputs)


def _judge(case: Case, ended: Ended, *, has_result: bool) -> Iterator[str]:
    seconds = ended.seconds or 0.0
    if ended.leaked or seconds > _LIMIT:
        yield f"ended: {ended.leaked} processes left, {seconds:.0f} s"
    # The rank that does not fail may have finished before the other fails.
    if "FINISHED" in ended.output or (case.phase == "teardown" and has_result):
        return
    if not re.search(_CAUSES[case.fault], ended.output):
        yield "named: the cause is not in the output"
    # A SIGTERM that all ranks agree upon is not a failure.
    if not any(ended.codes) and not (case.fault == "terminated" and "Received SIGTERM" in ended.output):
        yield "named: exit code 0"


def main() -> int:
    """Run all series, print a row for each failure, and return 1 if one has a problem."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=500)
    arguments.add_argument("--faults", nargs="+", choices=_CAUSES, default=list(_CAUSES), metavar="FAULT")
    arguments.add_argument("--jobs", type=int, default=1, help="series at a time; each mostly waits for a timeout")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    count = -(-options.runs // _SERIES)
    series = [draw(random.Random(options.seed * 1_000_003 + index), index, options.faults) for index in range(count)]
    # Once for all threads.
    for strategy in STRATEGIES[:count]:
        undisturbed(*_options(strategy), limit=_RUN_LIMIT)
    runs: collections.Counter[tuple[str, str]] = collections.Counter()
    wrong: collections.Counter[tuple[str, str]] = collections.Counter()
    table = Table("strategy", "fault", "phase", "rank", "call", "delay", options=options)
    with ThreadPoolExecutor(options.jobs) as pool:
        for cases, (found, output) in zip(series, pool.map(run, series), strict=True):
            for case, problems in zip(cases, found, strict=True):
                fields = asdict(case)
                table.add(*fields.values(), problems=problems, output=output, **fields)
                runs[case.strategy, case.fault] += 1
                wrong[case.strategy, case.fault] += bool(problems)
    print("\n| strategy | fault | runs | with a problem |\n|---|---|---|---|")
    for strategy, fault in sorted(runs):
        print(f"| {strategy} | {fault} | {runs[strategy, fault]} | {wrong[strategy, fault]} |")
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
