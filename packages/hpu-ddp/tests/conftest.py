"""Fixtures: a pool of ranks, and programs with simulated devices."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_testing import CompletedProgram, Program, SharedRankPool, fork_server, machine_env
from hpu_testing.warning_filters import raise_warnings

fork_server.PRELOADED += ["lightning.pytorch"]

PROGRAMS = Path(__file__).parent / "programs"

OnRanks = Callable[..., list[Any]]
Run = Callable[..., CompletedProgram]


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a test function on every rank, and returns the results by rank.

    `on_ranks(function, *arguments, count=2, lazy=False, seconds=60)`. Tests with the same `count` share the ranks,
    which are restarted after a failure.
    """
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=raise_warnings) as ranks:
        yield ranks.call


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Return a function that makes a `Program` of a script of tests/programs, with its own simulated devices."""

    def program(name: str, *arguments: str, devices: int = 2, interpreter: tuple[str, ...] = (), **more: str) -> Any:
        command = [*(interpreter or (sys.executable,)), str(PROGRAMS / name), *arguments]
        environment = machine_env(devices, tmp_path / "cards", **more)
        return Program(command, environment, tmp_path, preloaded="-i" not in interpreter)

    return program


@pytest.fixture
def run(program: Callable[..., Program]) -> Run:
    """Return a function that runs a script of tests/programs to completion and returns its `CompletedProgram`."""

    def run(name: str, *arguments: str, seconds: float = 150, **options: Any) -> CompletedProgram:
        with program(name, *arguments, **options) as running:
            return running.wait(seconds)

    return run
