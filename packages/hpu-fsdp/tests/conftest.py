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

# What sharding needs.
FREES_STORAGES = Version(torch.__version__) >= Version("2.3.dev0")
NEEDS_STORAGES = "torch < 2.3 cannot resize hpu storages from Python"
SCALES = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.3.dev0"), reason="Requires: torch 2.3, which scales losses on HPU"
)

_LIGHTNING = frameworks.current().version
# Their imports need `fully_shard`.
collect_ignore = (
    ["test_model_parallel.py", "test_sharding.py", "test_two_machines.py", "programs/hybrid_sharding.py"]
    if Version(torch.__version__) < Version("2.7.dev0")
    else []
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all tests but those of the entry point and of the error on Lightning that hpu-fsdp does not support."""
    if Version("2.3.dev0") > _LIGHTNING:
        for item in items:
            if "test_hpu_core_finds_the_entry_point" not in item.name:
                item.add_marker(pytest.mark.skip(reason=f"hpu-fsdp needs Lightning 2.3 or newer, got {_LIGHTNING}"))


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
            if count > 1 and not FREES_STORAGES:
                pytest.skip(NEEDS_STORAGES)
            return ranks.call(function, *arguments, count=count, **options)

        yield call
