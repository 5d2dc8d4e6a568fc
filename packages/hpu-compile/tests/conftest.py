"""Fixtures: a pool of ranks, and torch's compiler as it is before the first compilation."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hpu_compile import _torch
from hpu_testing import SharedRankPool

OnRanks = Callable[..., list[Any]]


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of Lightning about very small programs, and use one thread, which is faster for them."""
    torch.set_num_threads(1)
    for message in (
        "You defined a `validation_step` but have no `val_dataloader`",
        "The number of training batches .* is smaller than the logging interval",
        # torch's own, while dynamo reads tensors.
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed",
        "The '.*_dataloader' does not have many workers",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that compile where torch cannot compile a class of blocks once."""
    if not _torch.supports_regions():
        for item in items:
            if "compiler" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="Requires: torch 2.5"))


@pytest.fixture
def compiler() -> Iterator[None]:
    """Forget the compilations of other tests."""
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a test function on every rank, and returns the results by rank.

    `on_ranks(function, *arguments, count=2, seconds=60)`.
    """
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks.call
