"""torch's own ways to share a model between ranks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.hpu(devices=2, lazy=True)


@pytest.mark.parametrize("way", ["first", "second"], ids=["FullyShardedDataParallel", "fully_shard"])
def test_a_sharded_model_learns_as_a_whole_one(way: str, run_ranks: Callable[..., list[str]]) -> None:
    """Two ranks come as far as one process of plain torch on the CPU."""
    (line,) = [line for line in run_ranks("sharded.py", way) if line.startswith("{")]
    differences = json.loads(line)

    assert len(differences) == 6
    assert max(differences.values()) < 1e-5
