"""Two machines of two cards each: network namespaces with addresses of their own and a cable between them.

The commands are those that Lightning's documentation gives for several machines.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.testing import CompletedProgram, Program, machine_env

if TYPE_CHECKING:
    from collections.abc import Iterator

_IP = shutil.which("ip") or "ip"
_PROGRAM = Path(__file__).parents[1] / "tests" / "programs" / "train.py"
_CARDS = 2
_NODES = 2
# Within which everything has to end; half of it is how long a machine may be out of reach.
_TIMEOUT = 40
_PATIENCE = 120


@dataclass(frozen=True)
class Node:
    """A machine.

    Attributes:
        rank: Its number.
        name: Of its namespace.
        link: Of its end of the cable.
        address: On the cable.
    """

    rank: int
    name: str
    link: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """What a command of this machine begins with."""
        return [_IP, "netns", "exec", self.name]


def _ip(*arguments: str) -> None:
    subprocess.run([_IP, *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    """Two machines and a cable between them; skips where this process may not make any."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command `ip` (iproute2)")
    # Names of this process, because all namespaces of a machine are in one list.
    nodes = [
        Node(rank, f"hpu-ddp-{os.getpid()}-{rank}", f"ddp{os.getpid()}n{rank}", f"10.77.0.{rank + 1}")
        for rank in range(_NODES)
    ]
    with ExitStack() as stack:
        for node in nodes:
            try:
                _ip("netns", "add", node.name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"needs the right to make network namespaces: {error.stderr.strip()}")
            # What is in a namespace goes with it.
            stack.callback(_ip, "netns", "delete", node.name)
            _ip("-n", node.name, "link", "set", "lo", "up")
        first, second = nodes
        _ip("link", "add", first.link, "netns", first.name, "type", "veth", "peer", second.link, "netns", second.name)
        for node in nodes:
            _ip("-n", node.name, "address", "add", f"{node.address}/24", "dev", node.link)
            _ip("-n", node.name, "link", "set", node.link, "up")
        yield nodes


def _train(nodes: list[Node], folder: Path, *arguments: str) -> list[CompletedProgram]:
    """Start the same training on each machine, as a person would, and return what came of it on each."""
    rendezvous = {"MASTER_ADDR": nodes[0].address, "MASTER_PORT": "29500", "WORLD_SIZE": str(_CARDS * _NODES)}
    size = ("--devices", str(_CARDS), "--num-nodes", str(_NODES), "--timeout", str(_TIMEOUT))
    with ExitStack() as stack:
        running = []
        for node in nodes:
            cards = folder / node.name
            variables = machine_env(
                _CARDS, cards, **rendezvous, NODE_RANK=str(node.rank), CUT=f"{_IP} link set {node.link} down"
            )
            command = [*node.prefix, sys.executable, str(_PROGRAM), *size, *arguments]
            running.append(stack.enter_context(Program(command, variables)))
        return [program.wait(_PATIENCE) for program in running]


def _reports(done: CompletedProgram) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]


def test_two_nodes_train_together(nodes: list[Node], tmp_path: Path) -> None:
    """One training of four ranks, which all end with the same weights, each on its own card of its machine."""
    done = _train(nodes, tmp_path)

    assert [(each.code, each.leaked_pids) for each in done] == [(0, ())] * _NODES, [each.output for each in done]
    reports = [report for each in done for report in sorted(_reports(each), key=lambda report: int(report["rank"]))]
    assert [(report["rank"], report["local_rank"], report["module_id"]) for report in reports] == [
        (0, 0, "0"),
        (1, 1, "1"),
        (2, 0, "0"),
        (3, 1, "1"),
    ]
    assert len({report["weights"] for report in reports}) == 1
    assert len({tuple(report["losses"]) for report in reports}) == _CARDS * _NODES


@pytest.mark.parametrize("rank", [0, 3], ids=["the first machine", "the second machine"])
def test_a_cut_cable_ends_the_training_on_both_sides(rank: int, nodes: list[Node], tmp_path: Path) -> None:
    """Each side's ranks end within the user's timeout and say that the other cannot be reached.

    By an exception, or, where a collective holds a rank and no exception can reach it, from outside.
    """
    done = _train(nodes, tmp_path, "--fail", "cut off", "--rank", str(rank), "--epochs", "1000")

    for own, each in enumerate(done):
        assert each.code != 0
        assert each.leaked_pids == ()
        assert each.seconds < _PATIENCE, each.output
        other = r"rank [23]" if own == 0 else r"rank 0"
        said = rf"(ends, because|RankFailedError:) {other} \(.*\) (cannot be reached|does not answer)"
        assert re.search(said, each.output), each.output
