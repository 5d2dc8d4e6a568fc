"""Measure how a training of several ranks ends when one of them fails, and print a Markdown table.

Each run trains on simulated cards, on one machine of two or on two machines of two each, which are network namespaces.
The last rank fails, or rank 0 where only that makes sense. Seconds count from the failure to the end of the last
process. A run is counted as wrong if it takes longer than its limit, if a process, thread or variable is left, or if
the output does not name rank and cause.

    python tests/trials/faults.py [--runs 20] [--only killed hung] [--read none] [--mode async] [--json cells.json]

`nox -s faults` calls it. The table of DDP on one machine, in both modes and with ten kills a cell, on two idle cores:

    nox -s faults -- --strategy ddp --api Trainer --machines 1 --jobs 3 --json ddp.json
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import APIS, STRATEGIES, Ended, Scenario, parser, run_cases, train
from hpu_testing import Network, free_port

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_DEVICES = 2
# How long one run may take, start included.
_RUN_LIMIT = 180.0


@dataclass(frozen=True)
class Fault(Scenario):
    """A way to fail.

    Attributes:
        timeout: The strategy's timeout in seconds.
        machines: Numbers of machines with which the failure is possible.
        read: How each rank waits for its device after a step, value of training.py's `--read`. In the default mode, a
            collective holds the host itself.
    """

    timeout: float = 60
    machines: tuple[int, ...] = (1, 2)
    read: str = "none"


_NAMED = r"rank {rank} \(pid \d+ on \S+\)"
_EXITED = _NAMED + r" exited.*: (killed by signal 9|its (store|process))"
_HUNG = _NAMED + r" has made no progress for \d+ s"
_READS = ("item", "synchronize", "event", "all-reduce")
_FAULTS = (
    Fault("killed", _EXITED, 15),
    Fault("killed", _EXITED, 15, rank=0),
    Fault("raised", _NAMED + r" failed.*: ValueError: an error of the user's", 15),
    Fault("left", _NAMED + r" (left the job|had fewer batches|exited)", 15),
    Fault("hung", _HUNG, 30, timeout=30),
    Fault("stopped", _HUNG, 30, timeout=30),
    *(Fault("killed", _EXITED, 15, machines=(1,), read=read) for read in _READS),
    *(Fault("hung", _HUNG, 30, timeout=30, machines=(1,), read=read) for read in _READS),
    Fault("never came", r"rank(s \d,)? {rank} did not join at \S+ within 20 s", 30, timeout=20),
    Fault("cut off", r"has sent no heartbeat for \d+ s", 40, timeout=40, machines=(2,)),
    Fault("monitor error", r"failure detection is off on rank {rank}", 60, exit_ok=True),
)


@dataclass(frozen=True)
class Case:
    """A training and its failure.

    Attributes:
        strategy: "ddp", "deepspeed" or "fsdp".
        api: "Trainer" or "Fabric".
        machines: Number of machines.
        mode: "default", or "async" for simulated devices that run beside their hosts.
        fault: The failure.
    """

    strategy: str
    api: str
    machines: int
    mode: str
    fault: Fault

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.machines * _DEVICES

    @property
    def rank(self) -> int:
        """The rank that fails."""
        return self.ranks - 1 if self.fault.rank is None else self.fault.rank

    def run(self, network: Network | None, folder: Path) -> Ended:
        """Run the training once."""
        if network is not None:
            network.connect()
        options = [f"--strategy={self.strategy}", f"--api={self.api}", f"--num-nodes={self.machines}"]
        options += [f"--fault={self.fault.fault}", f"--rank={self.rank}", f"--timeout={self.fault.timeout}"]
        # It fails in the sixth of 40 steps.
        options += ["--call=5", "--steps=40", "--samples=40000", f"--read={self.fault.read}"]
        if self.fault.read == "synchronize":
            # Its last report is of the step in which it keeps the lock.
            options.append("--pause=1.5")
        return train(folder, *options, limit=_RUN_LIMIT, programs=self._programs(network, folder))

    def _programs(self, network: Network | None, folder: Path) -> Iterator[dict[str, Any]]:
        """Yield how each program of the training starts: one a machine, or one a rank where a rank never comes."""
        common = {"MASTER_PORT": str(free_port()), "FAULT_FILE": str(folder / "fault"), "MASTER_ADDR": "127.0.0.1"}
        if self.mode == "async":
            common["HPU_SIM_ASYNC"] = "1"
        for node in range(self.machines):
            variables = common
            launcher = [sys.executable]
            if network is not None and self.machines > 1:
                launcher = network.command(node, launcher)
                variables = common | {
                    "MASTER_ADDR": network.address(0),
                    "NODE_RANK": str(node),
                    "CUT": shlex.join(network.cut_command(node)),
                }
            ranks: list[dict[str, str]] = [{}]
            if self.fault.fault == "never came":
                present = (rank for rank in range(_DEVICES) if node * _DEVICES + rank != self.rank)
                ranks = [{"LOCAL_RANK": str(rank)} for rank in present]
            for rank in ranks:
                yield {"launcher": launcher, "machine": folder / f"machine-{node}", "variables": variables | rank}

    def judge(self, ended: Ended) -> Iterator[str]:
        """Yield what is not as promised."""
        yield from self.fault.judge(ended)
        yield from (f"not named by rank {rank}" for rank in self._silent_survivors(ended.output))
        if self.fault.exit_ok and ended.output.count("FINISHED") != self.ranks:
            yield "not finished"

    def _silent_survivors(self, output: str) -> list[int]:
        """Return the ranks whose output does not name the failure, as it should."""
        error = self.fault.error.format(rank=self.rank)
        if self.fault.exit_ok or self.fault.fault == "never came":
            # Other ranks are not told by the monitor, which has not started or has ended.
            return [] if re.search(error, output) else [self.rank]
        named = rf"\[rank ?(\d+)\](?: aborting)?: .*{error}"
        survivors = set(range(self.ranks)) - {self.rank}
        if self.fault.fault == "cut off":
            survivors -= {*range(self.ranks - _DEVICES, self.ranks)}
        return sorted(survivors - {int(match[1]) for match in re.finditer(named, output)})


CASES = [
    Case(strategy, api, machines, mode, fault)
    for strategy, api, machines, mode, fault in itertools.product(
        STRATEGIES, APIS, (1, 2), ("default", "async"), _FAULTS
    )
    if machines in fault.machines and (mode == "async" or fault.read == "none")
]


def measure(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Run a case several times, and return its row."""
    fault = case.fault
    seconds = []
    outputs = []
    problems: set[str] = set()
    runs = options.runs if fault.fault == "killed" else options.other_runs
    for _ in range(runs):
        # Cases of two machines need `--jobs 1`.
        machines = contextlib.nullcontext() if case.machines == 1 else Network()
        with tempfile.TemporaryDirectory(prefix="faults-") as folder, machines as network:
            ended = case.run(network, Path(folder))
        seconds.append(round(ended.seconds or 0.0, 2))
        if found := list(case.judge(ended)):
            problems.update(found)
            outputs.append(ended.output)
    times = (f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}", f"{fault.limit:g}")
    fields = {"strategy": case.strategy, "api": case.api, "machines": case.machines, "mode": case.mode}
    more = {"fault": fault.fault, "read": fault.read, "rank": case.rank, "limit": fault.limit, "seconds": seconds}
    cells = (*fields.values(), f"{fault.fault} (rank {case.rank}, reads {fault.read})", runs, *times)
    return {"cells": cells, "problems": sorted(problems), "output": "\n".join(outputs), **fields, **more}


def main() -> int:
    """Run all cases, print a row for each, and return 1 if one has a problem."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=10, help="runs of each case in which a rank is killed")
    arguments.add_argument("--other-runs", type=int, default=1, help="runs of each other case")
    columns = ("strategy", "API", "machines", "devices", "fault", "runs", "median s", "max s", "limit s")
    names = {"strategy": "strategy", "api": "api", "machines": "machines", "mode": "mode", "only": "fault.fault"}
    return run_cases(arguments, CASES, measure, *columns, read="fault.read", **names)


if __name__ == "__main__":
    sys.exit(main())
