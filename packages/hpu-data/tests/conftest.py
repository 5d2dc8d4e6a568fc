"""Fixtures: a simulated card for this process, a stand-in for torchvision, image folders, and a pool of ranks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_testing import SharedRankPool, own_cards

OnRanks = Callable[..., list[Any]]


def pytest_configure(config: pytest.Config) -> None:
    """Activate the simulator before any test module imports torch."""
    for message in (
        "You defined a `validation_step` but have no `val_dataloader`",
        "The number of training batches .* is smaller than the logging interval",
        "Checkpoint directory .* exists and is not empty",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")
    own_cards.activate()
    from .modules import prepare

    prepare()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of ten JPEG images of two classes."""
    from .modules import write_images

    return write_images(tmp_path / "images", 10)


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a test function on every rank, and returns the results by rank."""
    from .modules import prepare

    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=prepare) as ranks:
        yield ranks.call
