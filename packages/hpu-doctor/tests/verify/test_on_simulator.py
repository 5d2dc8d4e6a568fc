"""What the register assumes of the bridge holds on simulated machines of the releases that it names."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hpu_doctor.verify import program, register
from hpu_doctor.verify.assumption import Assumption, is_expected
from hpu_doctor.verify.register import media, modes
from hpu_testing.fork_server import forks
from hpu_testing.leftovers import shared_children
from hpu_testing.processes import free_port, machine_env

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = Path(__file__).with_name("program_server.py")

# For each release in turn, what an assumption is claimed for is tried on the first that it names.
RELEASES = ("1.24.1", "1.18.0", "1.12.1")
GENERATIONS = ("GAUDI2", "GAUDI3", "GAUDI")
RANKS = 2
# Their programs take seconds.
SLOW = (modes.COMPILE.title, media.SUBJECT.title)
# Simulated cards show it, in a process that a server forks.
SHOWN = [
    pytest.param(each.id, marks=(pytest.mark.slow, pytest.mark.timeout(120))) if each.subject in SLOW else each.id
    for each in register.assumptions()
    if not each.variables
]


class Machines:
    """Simulated machines on which programs run, one server for each release, generation and mode."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[tuple[str, ...], subprocess.Popen[str]] = {}
        self._runs = 0

    def seen(self, assumption: Assumption) -> dict[str, Any]:
        """Return what the program of an assumption has written, or how it ended."""
        self._runs += 1
        folder = self._folder / str(self._runs)
        folder.mkdir()
        job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS)}
        ranks = [{**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)]
        request = {"id": assumption.id, "folder": str(folder)}
        server = self._server(assumption)
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps({**request, "ranks": ranks if assumption.ranks else [{}]}) + "\n")
        server.stdin.flush()
        error = {"error": f"exit code {server.stdout.readline()}"}
        file = program.result_file(folder, 0)
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else error
        return result

    def _server(self, assumption: Assumption) -> subprocess.Popen[str]:
        release = next(each for each in RELEASES if assumption.applies_to(each, None))
        generation = next(each for each in GENERATIONS if assumption.applies_to(None, each))
        key = (release, generation, assumption.mode or "")
        if key not in self._servers:
            variables = {"HPU_SIM_RELEASE": release, "HPU_SIM_GENERATION": generation}
            if assumption.mode:
                variables["PT_HPU_LAZY_MODE"] = "1" if assumption.mode == "lazy" else "0"
            with forks():
                self._servers[key] = subprocess.Popen(
                    [sys.executable, str(SERVER)],
                    env=machine_env(RANKS, self._folder, **variables),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            shared_children.add(self._servers[key].pid)
        return self._servers[key]

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.communicate()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with contextlib.closing(Machines(tmp_path_factory.mktemp("runs"))) as found:
        yield found


@pytest.mark.parametrize("name", SHOWN)
def test_assumption_holds_on_the_simulator(machines: Machines, name: str) -> None:
    assumption = register.find(name)
    if assumption.subject == media.SUBJECT.title:
        pytest.importorskip("PIL", reason="Requires: Pillow")

    result = machines.seen(assumption)

    assert is_expected(assumption.expected, result.get("seen")), result
