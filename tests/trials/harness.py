"""Harness of the trials: a training of several ranks, a failure, what is collected afterwards, and one table.

A trial is a list of cases. Most start training.py in one process or several, on one machine or several, by hand or by
an engine; let a rank or a machine fail; and wait for the end of every process. `run_cases` adds the options that
select cases, and `Table` has a row for each, printed at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psutil

from hpu_testing import Program, machine_env

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

TRAINING: Final = Path(__file__).with_name("training.py").resolve()
STRATEGIES: Final = ("ddp", "fsdp", "deepspeed")
APIS: Final = ("Trainer", "Fabric")
# torchrun, ray and hpu-launch are beside Python.
BIN: Final = Path(sys.executable).parent
_PATH: Final = f"{BIN}:{os.environ['PATH']}"

T = TypeVar("T")
Ranks = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Ended:
    """What is left of a training.

    Attributes:
        codes: Exit code of each program.
        output: Output of all programs.
        seconds: From the failure to the end of the last process; None if nothing failed.
        leaked: Number of processes that outlived the limit.
    """

    codes: tuple[int, ...]
    output: str
    seconds: float | None
    leaked: int


@dataclass(frozen=True)
class Scenario:
    """A way in which a rank fails, and what is promised of the end of the training.

    Attributes:
        fault: Value of training.py's `--fault`.
        error: Pattern in the output, in which `{rank}` stands for the rank that failed.
        limit: Seconds from the failure to the end of the last process.
        rank: The rank that fails; the last one where None, all where -1.
        exit_ok: Whether every program ends with exit code 0.
    """

    fault: str
    error: str
    limit: float
    rank: int | None = None
    exit_ok: bool = False

    def judge(self, ended: Ended, *, may_leave: bool = False) -> Iterator[str]:
        """Yield what is not as promised, apart from the error; `may_leave` allows threads and variables to be left."""
        if ended.seconds is not None and ended.seconds > self.limit:
            yield f"{ended.seconds:.0f} s"
        if ended.leaked:
            yield "processes left"
        if "LEFT" in ended.output and not may_leave:
            yield "threads or variables left"
        # The machine of a rank that has left may have no rank to report it, the others must.
        all_fail = all(ended.codes) or (self.fault == "left" and any(ended.codes))
        if any(ended.codes) if self.exit_ok else not all_fail:
            yield f"exit codes {list(ended.codes)}"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all trials, which `Table` reads."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--keep", type=Path, help="folder for the output of runs with a problem")
    made.add_argument("--json", type=Path, help="file for the rows")
    return made


def run_cases(
    arguments: argparse.ArgumentParser,
    cases: Sequence[T],
    measure: Callable[[T, argparse.Namespace], dict[str, Any]],
    *columns: str,
    **attributes: str,
) -> int:
    """Measure the cases that the command line selects, print a row for each, and return 1 if one has a problem.

    Args:
        arguments: The parser.
        cases: All cases.
        measure: Returns the row of a case, as arguments of `Table.add`.
        *columns: The headings.
        **attributes: An attribute of the cases, by the name of the option that selects cases by it.
    """
    arguments.add_argument("--jobs", type=int, default=1, help="cases at the same time")
    # The session's name for the program.
    arguments.add_argument("program", nargs="?", help=argparse.SUPPRESS)
    getters = {option: attrgetter(attribute) for option, attribute in attributes.items()}
    for option, get in getters.items():
        values = list(dict.fromkeys(map(get, cases)))
        arguments.add_argument(f"--{option}", type=type(values[0]), choices=values, nargs="+", default=values)
    options = arguments.parse_args()
    selected = [case for case in cases if all(get(case) in vars(options)[name] for name, get in getters.items())]
    table = Table(*columns, options=options)
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda case: measure(case, options), selected):
            table.add(*row.pop("cells"), **row)
    return min(table.wrong, 1)


def start(
    folder: Path,
    *options: str,
    launcher: Sequence[str] = (sys.executable,),
    cards: int = 2,
    machine: Path | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Program:
    """Return the training as a program, which is a context manager.

    Args:
        folder: Folder of checkpoints and results. It is in the command line of every process of the training.
        *options: Options of training.py.
        launcher: Command in front of training.py.
        cards: Number of cards of the machine.
        machine: Folder that names the machine, and has the time of the failure; by default `folder`.
        variables: More environment variables.
    """
    machine = machine or folder
    environment = machine_env(cards, machine, FAULT_FILE=str(machine / "fault"), PATH=_PATH)
    command = [*launcher, str(TRAINING), "--folder", str(folder), *options]
    return Program(command, {**environment, **variables}, folder)


def train(
    folder: Path, *options: str, limit: float, programs: Iterable[Mapping[str, Any]] = ({},), fault: Path | None = None
) -> Ended:
    """Run a training to its end: `start` each of its programs with further arguments, then `finish`."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(start(folder, *options, **arguments)) for arguments in programs]
        return finish(folder, started, limit, fault=fault)


def finish(folder: Path, programs: Iterable[Program], limit: float, *, fault: Path | None = None) -> Ended:
    """Wait for the end of a training, and kill what is left of it.

    Args:
        folder: Folder of the training.
        programs: The programs, which have started.
        limit: Seconds that a program may take, from its start.
        fault: File with the time of the failure; by default that of `start`.
    """
    fault = fault or folder / "fault"
    done = [program.wait(limit) for program in programs]
    # Engines start sessions of their own.
    wait(lambda: not find_pids(folder), 1 if any(each.leaked_pids for each in done) else limit)
    ended = time.monotonic()
    left = find_pids(folder)
    kill(*left)
    seconds = ended - float(fault.read_text(encoding="ascii")) if fault.exists() else None
    leaked = len(left) + sum(len(each.leaked_pids) for each in done)
    return Ended(tuple(each.code for each in done), "\n".join(each.output for each in done), seconds, leaked)


def wait(is_done: Callable[[], bool], limit: float) -> bool:
    """Wait until something is so, and return whether it was within the limit in seconds."""
    deadline = time.monotonic() + limit
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def find_pids(folder: Path, program: str | None = None) -> list[int]:
    """Return the processes with a folder in their command line, the engine's and the ranks'.

    Args:
        folder: The folder.
        program: Name of the program; any where None.
    """
    found = []
    for process in psutil.process_iter(["cmdline"]):
        # Of a process that has just ended there is none.
        words = process.info["cmdline"] or [""]
        if any(str(folder) in word for word in words) and program in {None, Path(words[0]).name}:
            found.append(process.pid)
    return found


def kill(*pids: int) -> None:
    """Kill processes."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def results(folder: Path) -> Ranks:
    """Return what each rank has written at its end; nothing for a rank that has not finished."""
    files = folder.glob("rank-*.json")
    return {int(file.stem.removeprefix("rank-")): json.loads(file.read_text(encoding="utf-8")) for file in files}


@cache
def undisturbed(*options: str, limit: float) -> Ranks:
    """Return the results of a training of two ranks that nothing disturbs.

    Raises:
        RuntimeError: It fails; the message has its output.
    """
    with tempfile.TemporaryDirectory(prefix="undisturbed-") as name:
        ended = train(Path(name), *options, limit=limit)
        found = results(Path(name))
        if any(ended.codes) or not found:
            raise RuntimeError(ended.output)
        return found


def are_equal(found: Ranks, expected: Ranks) -> bool:
    """Return whether weights and loss of every rank are as expected.

    A training that had finished is resumed without a step, and has no loss.
    """
    return found.keys() == expected.keys() and all(
        rank["weights"] == expected[number]["weights"] and rank["loss"] in {expected[number]["loss"], None}
        for number, rank in found.items()
    )


class Table:
    """Markdown table that is printed row by row.

    Args:
        *columns: The headings, without that of the problems, which is the last one.
        options: Those of `parser`: a file for the rows, and a folder for the output of those with a problem.
    """

    def __init__(self, *columns: str, options: argparse.Namespace) -> None:
        self._options = options
        self._rows: list[dict[str, Any]] = []
        self.wrong = 0
        print(f"| {' | '.join(columns)} | problems |\n|{'---|' * (len(columns) + 1)}", flush=True)

    def add(self, *cells: object, problems: Sequence[str] = (), output: str = "", **fields: Any) -> None:
        """Print a row.

        Args:
            *cells: The cells, without that of the problems.
            problems: What is not as promised.
            output: Output of the run.
            **fields: The row in the JSON file.
        """
        self.wrong += bool(problems)
        print(f"| {' | '.join(map(str, (*cells, ', '.join(problems) or 'none')))} |", flush=True)
        self._rows.append({**fields, "problems": list(problems)})
        if self._options.json:
            self._options.json.write_text(json.dumps(self._rows, indent=1), encoding="utf-8")
        if problems and self._options.keep:
            self._options.keep.mkdir(parents=True, exist_ok=True)
            file = self._options.keep / f"row-{len(self._rows)}.log"
            file.write_text("\n".join([*map(str, cells), *problems, output]), encoding="utf-8")
