"""Ranks to call functions on, started once for all tests, and programs that tests start themselves."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .processes import Program, Ranks, environment

PROGRAMS = Path(__file__).parent / "programs"

OnRanks = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Calls a function of this test module on ranks that share a training, and returns what each of them returned.

    `on_ranks(function, *arguments, count=2, lazy=False)`. The ranks are the same for all tests that ask for as many,
    unless a test has failed on them.
    """
    pools: dict[tuple[int, bool], Ranks] = {}

    def on_ranks(
        function: Callable[..., Any], *arguments: Any, count: int = 2, lazy: bool = False, seconds: float = 240
    ) -> list[Any]:
        if (count, lazy) not in pools:
            pools[count, lazy] = Ranks(count, tmp_path_factory.mktemp("ranks"), lazy=lazy)
        try:
            return pools[count, lazy].call(function, *arguments, seconds=seconds)
        except AssertionError:
            pools.pop((count, lazy)).end()
            raise

    yield on_ranks
    for ranks in pools.values():
        ranks.end()


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Makes a program of tests/programs on a machine of its own: see `Program`."""

    def program(name: str, *arguments: str, devices: int = 2, **variables: str) -> Program:
        command = [sys.executable, str(PROGRAMS / name), *arguments]
        return Program(command, environment(devices, tmp_path / "cards", **variables), tmp_path)

    return program
