"""Fixtures: a simulated card for this process, and a pool of ranks."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hpu_sim
from hpu_testing import SharedRankPool

OnRanks = Callable[..., list[Any]]
# Variables of the developer's shell. HPU_SIM_CACHE is the folder of the compiled extension.
_PREFIXES = ("HABANA_", "HLS_", "HPU_", "PT_HPU_")
_NAMES = ("ID", "RANK", "WORLD_SIZE", "LOCAL_RANK")


def pytest_configure(config: pytest.Config) -> None:
    """Activate the simulator before any test module imports torch."""
    for name in [each for each in os.environ if each in _NAMES or each.startswith(_PREFIXES)]:
        if name != "HPU_SIM_CACHE":
            del os.environ[name]
    for message in (
        "You defined a `validation_step` but have no `val_dataloader`",
        "The number of training batches .* is smaller than the logging interval",
        # torch's own, while dynamo reads tensors.
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed",
        "The '.*_dataloader' does not have many workers",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")
    hpu_sim.activate(devices=2)

    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a test function on every rank, and returns the results by rank."""
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks.call
