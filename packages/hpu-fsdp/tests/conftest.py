"""Fixture: a pool of ranks with simulated devices."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hpu_sim.testing import SharedRankPool

from .warning_filters import prepare

OnRanks = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a test function on every rank, and returns the results by rank.

    `on_ranks(function, *arguments, count=2, lazy=False, seconds=60)`. Tests with the same `count` share the ranks,
    which are restarted after a failure.
    """
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=prepare) as ranks:
        yield ranks.call
