"""Fixtures: ranks shared by all tests, and programs run on a simulated machine of their own."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from hpu_core import frameworks
from hpu_deepspeed import _deepspeed
from hpu_testing import Program, SharedRankPool, machine_env
from hpu_testing.warning_filters import raise_warnings

PROGRAMS = Path(__file__).parent / "programs"

OnRanks = Callable[..., list[Any]]


def _prepare_rank() -> None:
    if frameworks.current().version < Version("2.6.dev0"):
        # Older Lightning relies on `torch.load`'s default of torch before 2.6.
        os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
    raise_warnings(
        # The module leaves the optimizer to DeepSpeed's configuration.
        "`LightningModule.configure_optimizers` returned `None`",
        # Notes about ZeRO stage 3 checkpoints and files converted from them.
        "When saving the DeepSpeed Stage 3 checkpoint",
        "A single checkpoint file has been given",
        # DeepSpeed's use of collectives that torch 2.13 deprecates, and its barrier.
        "`torch.distributed.* is deprecated",
        r"barrier\(\): using the device under current context",
        # DeepSpeed imports its CUDA operators without using them.
        "`torch.cuda.amp.custom_.wd.* is deprecated",
        module=r"deepspeed\.",
    )
    _deepspeed.load()


@pytest.fixture(scope="session")
def gaudi() -> None:
    """Skip the test if the installed DeepSpeed does not support Gaudi, as upstream releases before 0.13."""
    try:
        _deepspeed.check_version()
    except ImportError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def on_ranks(gaudi: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls another one on ranks of one process group and returns each rank's result.

    `on_ranks(function, *arguments, count=2, lazy=False, seconds=240)`. Tests that need the same number of ranks share
    them, unless a test has failed on them.
    """
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=_prepare_rank) as ranks:
        # DeepSpeed compiles some operators on first use.
        yield functools.partial(ranks.call, seconds=240)


@pytest.fixture
def program(gaudi: None, tmp_path: Path) -> Callable[..., Program]:
    """Return a function that creates a `Program` from tests/programs, on a simulated machine of its own."""

    def program(name: str, *arguments: str, devices: int = 2, **more: str) -> Program:
        command = [sys.executable, str(PROGRAMS / name), *arguments]
        return Program(command, machine_env(devices, tmp_path / "cards", **more), tmp_path, preloaded=True)

    return program
