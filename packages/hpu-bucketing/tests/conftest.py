"""Fixtures: a clean environment, and the profile of hypothesis for cheap tests."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

# Variables that the developer's shell may have set.
_VARIABLES = (
    "HPU_CORE_FRAMEWORK",
    "PT_HPU_LAZY_MODE",
    "PT_HPU_RECIPE_CACHE_CONFIG",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
)


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of Lightning about very small programs, and use one thread, which is faster for them."""
    torch.set_num_threads(1)
    for message in (
        "You defined a `validation_step` but have no `val_dataloader`",
        "The number of training batches .* is smaller than the logging interval",
        "The '.*_dataloader' does not have many workers",
        "Checkpoint directory .* exists and is not empty",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Unset variables that select a mode or a rank; restore the environment afterwards."""
    with mock.patch.dict(os.environ):
        for name in _VARIABLES:
            os.environ.pop(name, None)
        yield
