"""Ranks to call functions on, started once for all tests, and programs that tests start themselves."""

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_deepspeed import _vendor
from hpu_sim.testing import Program, SharedRankPool, machine_env

from .preparation import prepare

PROGRAMS = Path(__file__).parent / "programs"

OnRanks = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def gaudi() -> None:
    """Skips what needs a DeepSpeed that knows Gaudi where the installed one does not, as before 0.13 of its own."""
    try:
        _vendor.check_version()
    except ImportError as error:
        # The text says which DeepSpeed is installed, and which are for Gaudi.
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def on_ranks(gaudi: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Calls a function of this test module on ranks that share a training, and returns what each of them returned.

    `on_ranks(function, *arguments, count=2, lazy=False, seconds=240)`. The ranks are the same for all tests that
    ask for as many, unless a test has failed on them.
    """
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=prepare) as ranks:
        # ZeRO's operators are compiled where they are first used.
        yield functools.partial(ranks.call, seconds=240)


@pytest.fixture
def program(gaudi: None, tmp_path: Path) -> Callable[..., Program]:
    """Makes a program of tests/programs on a machine of its own: see `Program`."""

    def program(name: str, *arguments: str, devices: int = 2, **more: str) -> Program:
        command = [sys.executable, str(PROGRAMS / name), *arguments]
        return Program(command, machine_env(devices, tmp_path / "cards", **more), tmp_path)

    return program
