"""Fixture: a pool of ranks with simulated devices."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hpu_testing import SharedRankPool
from hpu_testing.warning_filters import raise_warnings

OnRanks = Callable[..., list[Any]]


def _prepare_rank() -> None:
    raise_warnings(
        # DeepSpeed's notes.
        "When saving the DeepSpeed Stage 3 checkpoint",
        "`torch.distributed.* is deprecated",
        r"barrier\(\): using the device under current context",
        "`torch.cuda.amp.custom_.wd.* is deprecated",
        # torch's sharded tensors and checkpoints, and DeepSpeed, use deprecated names.
        module=r"(torch|deepspeed)\.",
    )


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a test function on every rank, and returns the results by rank.

    `on_ranks(function, *arguments, count=2, seconds=60)`. Tests with the same `count` share the ranks.
    """
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=_prepare_rank) as ranks:
        yield ranks.call
