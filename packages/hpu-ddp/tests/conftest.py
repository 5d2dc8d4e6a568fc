"""Ranks to call functions on, started once for all tests, and programs that tests start themselves."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_sim.testing import CompletedProgram, Program, SharedRankPool, machine_env

from .warning_filters import prepare

PROGRAMS = Path(__file__).parent / "programs"

OnRanks = Callable[..., list[Any]]
Run = Callable[..., CompletedProgram]


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Calls a function of this test module on ranks that share a training, and returns what each of them returned.

    `on_ranks(function, *arguments, count=2, lazy=False, seconds=60)`. The ranks are the same for all tests that
    ask for as many, unless a test has failed on them.
    """
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=prepare) as ranks:
        yield ranks.call


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Makes a program of tests/programs, or of further arguments, on a machine of its own: see `Program`."""

    def program(name: str, *arguments: str, devices: int = 2, interpreter: tuple[str, ...] = (), **more: str) -> Any:
        command = [*(interpreter or (sys.executable,)), str(PROGRAMS / name), *arguments]
        return Program(command, machine_env(devices, tmp_path / "cards", **more), tmp_path)

    return program


@pytest.fixture
def run(program: Callable[..., Program]) -> Run:
    """Runs a program of tests/programs to its end, at most for some seconds, and returns what came of it."""

    def run(name: str, *arguments: str, seconds: float = 150, **options: Any) -> CompletedProgram:
        with program(name, *arguments, **options) as running:
            return running.wait(seconds)

    return run
