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
import re
import shlex
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness import STRATEGIES, Ended, Table, finish, keep_output, start
from hpu_testing import Network, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    def ranks(self) -> int:
        """Number of ranks."""
        return self.machines * _DEVICES

    @property
    def rank(self) -> int:
        """The rank that fails."""
        return self.ranks - 1 if self.fault.rank is None else self.fault.rank

    def run(self, network: Network, folder: Path) -> Ended:
        """Run the training once."""
        network.connect()
        fault = self.fault
        options = ["--strategy", self.strategy, "--api", self.api, "--fault", fault.name, "--rank", str(self.rank)]
        options += ["--num-nodes", str(self.machines), "--timeout", str(fault.timeout)]
        options += ["--steps", str(_STEPS), "--call", str(_FAULT_STEP), "--samples", "40000"]
        port = str(free_port())
        file = str(folder / "fault")
        programs = []
        with ExitStack() as stack:
            for node in range(self.machines):
                variables = {"MASTER_PORT": port, "FAULT_FILE": file}
                launcher = [sys.executable]
                if self.machines > 1:
                    launcher = network.command(node, launcher)
                    variables |= {"MASTER_ADDR": network.address(0), "NODE_RANK": str(node)}
                    variables["CUT"] = shlex.join(network.cut_command(node))
                    variables["SLOW_DOWN"] = shlex.join(network.slow_down_command(node, _SLOW_KILOBITS))
                ranks: list[dict[str, str]] = [{}]
                if fault.name == "never came":
                    # Of all ranks but the last, each is started by hand.
                    variables.setdefault("MASTER_ADDR", "127.0.0.1")
                    present = (rank for rank in range(_DEVICES) if node * _DEVICES + rank != self.rank)
                    ranks = [{"LOCAL_RANK": str(rank)} for rank in present]
                for rank in ranks:
                    machine = folder / f"machine-{node}"
                    program = start(folder, *options, launcher=launcher, machine=machine, variables=variables | rank)
                    programs.append(stack.enter_context(program))
            return finish(folder, programs, _RUN_LIMIT)

    def judge(self, ended: Ended) -> Iterator[str]:
        """Yield what is not as promised."""
        fault = self.fault
        if ended.seconds is not None and ended.seconds > fault.limit:
            yield f"{ended.seconds:.0f} s"
        if ended.leaked:
            yield "processes left"
        if "LEFT" in ended.output:
            yield "threads or variables left"
        yield from (f"not named by rank {rank}" for rank in self._silent_survivors(ended.output))
        # The machine of the failed rank may have no rank left to report it, the others must.
        is_reported = fault.name == "left" or 0 not in ended.codes
        if any(ended.codes) if fault.exit_ok else not (any(ended.codes) and is_reported):
            yield f"exit codes {list(ended.codes)}"
        if fault.exit_ok and ended.output.count("FINISHED") != self.ranks:
            yield "not finished"

    def _silent_survivors(self, output: str) -> list[int]:
        """Return the ranks whose output does not name the failure, as it should."""
        error = self.fault.error.format(rank=self.rank)
        if self.fault.exit_ok or self.fault.name in {"port taken", "never came"}:
            # Other ranks are not told by the watchdog, which has not started or has ended.
            return [] if re.search(error, output) else [self.rank]
        named = rf"\[rank ?(\d+)\](?: aborting)?: .*{error}"
        survivors = set(range(self.ranks)) - {self.rank}
        return sorted(survivors - {int(match[1]) for match in re.finditer(named, output)})


def measure(case: Case, network: Network, runs: int, keep: Path | None, table: Table) -> None:
    """Run a case several times, and add a row."""
    fault = case.fault
    seconds = []
    problems: set[str] = set()
    for index in range(runs):
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            ended = case.run(network, Path(folder))
        seconds.append(round(ended.seconds or 0.0, 2))
        if found := list(case.judge(ended)):
            problems.update(found)
            name = f"{case.strategy}-{case.api}-{case.machines}-{fault.name}-{case.rank}-{index}"
            keep_output(keep, name, ended.output)
    times = (f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}", f"{fault.limit:g}")
    fields = {"strategy": case.strategy, "api": case.api, "machines": case.machines}
    more = {"fault": fault.name, "rank": case.rank, "limit": fault.limit, "seconds": seconds}
    cells = (*fields.values(), f"{fault.name} (rank {case.rank})", runs, *times)
    table.add(*cells, problems=sorted(problems), **fields, **more)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for strategy, api, machines, fault in itertools.product(STRATEGIES, _APIS, (1, 2), _FAULTS):
        selected = {"strategy": strategy, "api": api, "machines": machines, "only": fault.name}
        if machines in fault.machines and all(getattr(options, key) in {None, selected[key]} for key in selected):
            yield Case(strategy, api, machines, fault)


def main() -> int:
    """Run all cases, print a row for each, and return 1 if one has a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="runs of each case in which a rank is killed")
    parser.add_argument("--other-runs", type=int, default=1, help="runs of each other case")
    parser.add_argument("--strategy", choices=STRATEGIES)
    parser.add_argument("--api", choices=_APIS)
    parser.add_argument("--machines", type=int, choices=(1, 2))
    parser.add_argument("--only", choices=sorted({fault.name for fault in _FAULTS}), help="a fault")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--keep", type=Path, help="folder for the output of runs with a problem")
    options = parser.parse_args()
    columns = ("strategy", "API", "machines", "fault", "runs", "median s", "max s", "limit s", "problems")
    table = Table(*columns, file=options.json)
    with Network() as network:
        for case in _cases(options):
            runs = options.runs if case.fault.name == "killed" else options.other_runs
            measure(case, network, runs, options.keep, table)
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
