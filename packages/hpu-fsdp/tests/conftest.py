"""Fixture: a pool of ranks with simulated devices. Tests that need a newer Lightning or torch are skipped."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_testing import SharedRankPool
from hpu_testing.warning_filters import raise_warnings

OnRanks = Callable[..., list[Any]]

_LIGHTNING, _TORCH = frameworks.current().version, Version(torch.__version__)
# Their imports need `fully_shard`.
collect_ignore = (
    [
        "test_entry_points.py",
        "test_model_parallel.py",
        "test_two_machines.py",
        "programs/hybrid_sharding.py",
    ]
    if Version("2.9.dev0") > _TORCH
    else []
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all tests but those of the entry point on Lightning and torch that hpu-fsdp does not support."""
    if Version("2.3.dev0") > min(_LIGHTNING, _TORCH):
        for item in items:
            if "test_hpu_core_finds_the_entry_point" not in item.name:
                item.add_marker(pytest.mark.skip(reason="Requires: Lightning and torch 2.3"))


def _prepare_rank() -> None:
    raise_warnings(
        "Be aware that when using `ckpt_path`, callbacks",
        "You're resuming from a checkpoint that ended before the epoch ended",
        "FSDP with `.*-true` enables computation in lower precision",
        # torch's sharded tensors and checkpoints use its own deprecated names.
        module=r"torch\.",
    )


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a test function on every rank, and returns the results by rank.

    `on_ranks(function, *arguments, count=2, lazy=False, seconds=60)`. Tests with the same `count` share the ranks,
    which are restarted after a failure.
    """
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=_prepare_rank) as ranks:

        def call(function: Callable[..., Any], *arguments: Any, count: int = 2, **options: Any) -> list[Any]:
            return ranks.call(function, *arguments, count=count, **options)

        yield call
