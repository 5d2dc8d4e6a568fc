"""Measure how a training of several ranks ends when one of them fails, and print a Markdown table.

Each run trains on simulated cards, on one machine of two or on two machines of two each, which are network namespaces.
The last rank fails, or rank 0 where only that makes sense. Seconds count from the failure to the end of the last
process. A run is counted as wrong if it takes longer than its limit, if a process, thread or variable is left, or if
the output does not name rank and cause.

    python tests/trials/faults.py [--runs 20] [--only killed] [--strategy fsdp] [--machines 1] [--json cells.json]

`nox -s faults` calls it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shlex
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_testing import CompletedProgram, Network, Program, free_port, machine_env

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAM = Path(__file__).with_name("training.py")
_STRATEGIES = ("ddp", "fsdp", "deepspeed")
_APIS = ("Trainer", "Fabric")
_DEVICES = 2
# Steps of a training, and the step in which a rank fails.
_STEPS, _FAULT_STEP = 40, 5
# How long one run may take, start included.
_RUN_LIMIT = 180.0
# Of a slow link: a thousandth of Gigabit Ethernet.
_SLOW_KILOBITS = 1000


@dataclass(frozen=True)
class Fault:
    """A way to fail.

    Attributes:
        name: Value of the program's `--fault`.
        limit: Seconds after which every process must have ended.
        error: Pattern of the error of the other ranks; `{rank}` stands for the rank that failed.
        timeout: The strategy's timeout in seconds.
        exit_ok: Whether the training ends with exit code 0.
        rank: The rank that fails; the last one when None.
        machines: Numbers of machines with which the failure is possible.
    """

    name: str
    limit: float
    error: str
    timeout: float = 60
    exit_ok: bool = False
    rank: int | None = None
    machines: tuple[int, ...] = (1, 2)


_NAMED = r"rank {rank} \(pid \d+ on \S+\)"
_FAULTS = (
    Fault("killed", 15, _NAMED + r" exited.*: (killed by signal 9|its (store|connections))"),
    Fault("killed", 15, _NAMED + r" exited.*: (killed by signal 9|its (store|connections))", rank=0),
    Fault("raised", 15, _NAMED + r" failed.*: ValueError: an error of the user's"),
    Fault("left", 15, _NAMED + r" (left the job|exited)"),
    Fault("hung", 30, _NAMED + r" has made no progress for \d+ s", timeout=30),
    Fault("stopped", 30, _NAMED + r" has made no progress for \d+ s", timeout=30),
    Fault("never came", 30, r"rank(s \d,)? {rank} did not join at \S+ within 20 s", timeout=20),
    Fault("port taken", 15, r"rank 0 cannot open the store at \S+", rank=0, timeout=600, machines=(1,)),
    # What listens at the port tells the other machine nothing.
    Fault("port taken", 40, r"rank 0 cannot open the store at \S+", rank=0, timeout=30, machines=(2,)),
    Fault("cut off", 40, r"(has sent no heartbeat|has not answered) for \d+ s", timeout=40, machines=(2,)),
    Fault("slow link", 60, "", exit_ok=True, machines=(2,)),
    Fault("watchdog error", 60, r"failure detection is off on rank {rank}", exit_ok=True),
)


@dataclass(frozen=True)
class Case:
    """A training and its failure.

    Attributes:
        strategy: "ddp", "deepspeed" or "fsdp".
        api: "Trainer" or "Fabric".
        machines: Number of machines.
        fault: The failure.
    """

    strategy: str
    api: str
    machines: int
    fault: Fault

    @property
    def rank(self) -> int:
        """The rank that fails."""
        return self.machines * _DEVICES - 1 if self.fault.rank is None else self.fault.rank


@dataclass(frozen=True)
class Outcome:
    """Result of one run.

    Attributes:
        seconds: From the failure to the end of the last process.
        problems: What is not as promised.
        output: Output of all machines.
    """

    seconds: float
    problems: tuple[str, ...]
    output: str


def run(case: Case, network: Network, folder: Path) -> Outcome:
    """Run one training."""
    network.connect()
    fault_file = folder / "fault"
    options = ["--strategy", case.strategy, "--api", case.api, "--fault", case.fault.name, "--rank", str(case.rank)]
    options += ["--num-nodes", str(case.machines), "--timeout", str(case.fault.timeout)]
    options += ["--steps", str(_STEPS), "--call", str(_FAULT_STEP), "--samples", "40000"]
    shared = {"FAULT_FILE": str(fault_file), "MASTER_PORT": str(free_port())}
    absent = case.fault.name == "never came"
    with ExitStack() as stack:
        programs = []
        for node in range(case.machines):
            more = dict(shared)
            prefix: list[str] = []
            if case.machines > 1:
                prefix = network.command(node, [])
                cut = shlex.join(network.cut_command(node))
                slow_down = shlex.join(network.slow_down_command(node, _SLOW_KILOBITS))
                more |= {"MASTER_ADDR": network.address(0), "NODE_RANK": str(node), "CUT": cut, "SLOW_DOWN": slow_down}
            if absent:
                # Of all ranks but the last, each is started by hand.
                more |= {"MASTER_ADDR": more.get("MASTER_ADDR", "127.0.0.1")}
            local = range(_DEVICES) if absent else [None]
            for rank in local:
                if rank is not None and node * _DEVICES + rank == case.rank:
                    continue
                own = more if rank is None else more | {"LOCAL_RANK": str(rank)}
                variables = machine_env(_DEVICES, folder / f"machine-{node}", **own)
                command = [*prefix, sys.executable, str(_PROGRAM), *options]
                programs.append(stack.enter_context(Program(command, variables, folder)))
        done = [program.wait(_RUN_LIMIT) for program in programs]
        ended = time.monotonic()
    started = float(fault_file.read_text(encoding="ascii")) if fault_file.exists() else ended
    return _judge(case, done, ended - started)


def _judge(case: Case, done: list[CompletedProgram], seconds: float) -> Outcome:
    output = "\n".join(each.output for each in done)
    problems = []
    if seconds > case.fault.limit:
        problems.append(f"{seconds:.0f} s")
    if any(each.leaked_pids for each in done):
        problems.append("processes left")
    if "LEFT" in output:
        problems.append("threads or variables left")
    problems += [f"not named by rank {rank}" for rank in _silent_survivors(case, output)]
    codes = [each.code for each in done]
    if case.fault.exit_ok != (not any(codes)):
        problems.append(f"exit codes {codes}")
    # The machine of the failed rank may have no rank left to report it, the others must.
    if not case.fault.exit_ok and 0 in codes and case.fault.name != "left":
        problems.append(f"exit codes {codes}")
    if case.fault.exit_ok and output.count("FINISHED") != case.machines * _DEVICES:
        problems.append("not finished")
    return Outcome(seconds, tuple(problems), output)


def _silent_survivors(case: Case, output: str) -> list[int]:
    """Return the ranks whose output does not name the failure, as it should."""
    error = case.fault.error.format(rank=case.rank)
    if case.fault.exit_ok or case.fault.name in {"port taken", "never came"}:
        # Other ranks are not told by the watchdog, which has not started or has ended.
        return [] if re.search(error, output) else [case.rank]
    survivors = set(range(case.machines * _DEVICES)) - {case.rank}
    named = rf"\[rank ?(\d+)\](?: aborting)?: .*{error}"
    return sorted(survivors - {int(match[1]) for match in re.finditer(named, output)})


@dataclass(frozen=True)
class Cell:
    """Row of the table: the runs of a case."""

    strategy: str
    api: str
    machines: int
    fault: str
    rank: int
    limit: float
    seconds: list[float]
    problems: list[str]

    def __str__(self) -> str:
        times = (f"{statistics.median(self.seconds):.1f}", f"{max(self.seconds):.1f}", f"{self.limit:g}")
        names = (self.strategy, self.api, self.machines, f"{self.fault} (rank {self.rank})", len(self.seconds))
        return f"| {' | '.join(map(str, (*names, *times, ', '.join(self.problems) or 'none')))} |"


def measure(case: Case, network: Network, runs: int, keep: Path | None) -> Cell:
    """Run a case several times.

    Args:
        case: The case.
        network: Two machines.
        runs: How many times.
        keep: Folder for the output of runs with a problem.
    """
    outcomes = []
    for index in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(run(case, network, Path(folder)))
        if outcomes[-1].problems and keep:
            keep.mkdir(parents=True, exist_ok=True)
            name = f"{case.strategy}-{case.api}-{case.machines}-{case.fault.name}-{case.rank}-{index}.log"
            (keep / name.replace(" ", "_")).write_text(outcomes[-1].output, encoding="utf-8")
    seconds = [round(outcome.seconds, 2) for outcome in outcomes]
    problems = sorted({problem for outcome in outcomes for problem in outcome.problems})
    fault = case.fault
    return Cell(case.strategy, case.api, case.machines, fault.name, case.rank, fault.limit, seconds, problems)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for strategy, api, machines, fault in itertools.product(_STRATEGIES, _APIS, (1, 2), _FAULTS):
        case = Case(strategy, api, machines, fault)
        selected = {"strategy": strategy, "api": api, "machines": machines, "only": fault.name}
        if machines in fault.machines and all(
            getattr(options, name) in {None, value} for name, value in selected.items()
        ):
            yield case


def main() -> int:
    """Run all cases, print a row for each, and return the number of rows with a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="runs of each case in which a rank is killed")
    parser.add_argument("--other-runs", type=int, default=1, help="runs of each other case")
    parser.add_argument("--strategy", choices=_STRATEGIES)
    parser.add_argument("--api", choices=_APIS)
    parser.add_argument("--machines", type=int, choices=(1, 2))
    parser.add_argument("--only", choices=sorted({fault.name for fault in _FAULTS}), help="a fault")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--keep", type=Path, help="folder for the output of runs with a problem")
    options = parser.parse_args()
    print("| strategy | API | machines | fault | runs | median s | max s | limit s | problems |", flush=True)
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    cells = []
    with Network() as network:
        for case in _cases(options):
            runs = options.runs if case.fault.name == "killed" else options.other_runs
            cells.append(measure(case, network, runs, options.keep))
            print(cells[-1], flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1), encoding="utf-8")
    return sum(bool(cell.problems) for cell in cells)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
