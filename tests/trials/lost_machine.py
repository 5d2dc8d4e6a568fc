"""Lose a machine of a torchrun job, go on with the other, and let the machine join again.

Two network namespaces are the machines, of one simulated card each. torchrun starts one rank on each, by
`hpu-launch --engine torchrun --nodes 2 --min-nodes 1`. The second machine is cut off and its processes are killed; the
rank of the first resumes by itself from the last checkpoint. Then the second machine starts again.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hpu_testing import Network, Program, free_port, machine_env
from jobs import BIN, VARIABLES, script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LIMIT = 120.0
_POLL = 0.1


def lose_a_machine(folder: Path) -> list[tuple[str, str, bool]]:
    """Return what was done, the seconds, and whether it was as expected.

    Args:
        folder: An empty folder.

    Raises:
        TimeoutError: A step takes too long; the message has the output of the machines.
    """
    rows = []
    with Network() as network, ExitStack() as stack:
        port = str(free_port())
        first = stack.enter_context(_agent(network, 0, folder, port))
        stack.enter_context(_agent(network, 1, folder, port))
        checkpoint = folder / "checkpoints" / "last.ckpt"
        _wait(lambda: _starts(folder) == ["2"] and checkpoint.exists(), first)
        network.cut(1)
        network.kill(1)
        rows.append(("2 machines of 1 rank: lose one", _wait(lambda: _starts(folder)[1:] == ["1"], first), True))
        network.connect()
        second = stack.enter_context(_agent(network, 1, folder, port))
        rows.append(("it joins again", _wait(lambda: _starts(folder)[2:] == ["2"], first, second), True))
        epochs = [int(line.split()[1]) for line in (folder / "starts.txt").read_text().splitlines()]
        (folder / "end").touch()
        done = first.wait(time.monotonic() + _LIMIT)
        resumed = epochs[0] == 0 < epochs[1] <= epochs[2]
        rows.append((f"end; resumed at epochs {epochs[1]} and {epochs[2]}", "", done.code == 0 and resumed))
    return rows


def _agent(network: Network, machine: int, folder: Path, port: str) -> Program:
    launch = [str(BIN / "hpu-launch"), "--engine", "torchrun", "--nodes", "2", "--min-nodes", "1", "--devices", "1"]
    launch += ["--max-restarts", "5", "--address", network.address(0), "--port", port, "--no-checks", "--run"]
    training = script(folder, 1, "--until", str(folder / "end"), "--timeout", "30")
    # The namespaces have no host names of their own, by which torchrun finds out on which machine it runs.
    variables = VARIABLES | {"PET_LOCAL_ADDR": network.address(machine), "PET_RDZV_CONF": f"is_host={1 - machine}"}
    environment = machine_env(1, folder / f"machine-{machine}", **variables)
    return Program(network.command(machine, [*launch, *training]), environment, folder)


def _starts(folder: Path) -> list[str]:
    """Return the number of ranks of each start."""
    file = folder / "starts.txt"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def _wait(is_done: Callable[[], bool], *programs: Program) -> str:
    """Wait, and return the seconds."""
    began = time.monotonic()
    while not is_done():
        if time.monotonic() - began > _LIMIT:
            raise TimeoutError("\n".join(program.output for program in programs))
        time.sleep(_POLL)
    return f"{time.monotonic() - began:.0f}"
