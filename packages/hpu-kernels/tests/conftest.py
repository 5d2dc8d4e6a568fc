"""Fixtures: a simulated card for this process, and a pool of ranks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hpu_testing import SharedRankPool, own_cards

OnRanks = Callable[..., list[Any]]


def pytest_configure(config: pytest.Config) -> None:
    """Activate the simulator before any test module imports torch."""
    for message in (
        "You defined a `validation_step` but have no `val_dataloader`",
        "The number of training batches .* is smaller than the logging interval",
        # torch's own, while dynamo reads tensors.
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed",
        "The '.*_dataloader' does not have many workers",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")
    own_cards.activate()


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a test function on every rank, and returns the results by rank."""
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks.call
