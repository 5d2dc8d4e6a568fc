"""torch's own sharded training."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.hpu(devices=2, lazy=True)


@pytest.mark.parametrize("version", ["fsdp1", "fsdp2"], ids=["FullyShardedDataParallel", "fully_shard"])
def test_a_sharded_model_trains_as_a_whole_one(
    version: str, run_ranks: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks get the weights of one process on the CPU."""
    # Lazy mode cannot free the storage of a gathered parameter.
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    (line,) = [line for line in run_ranks("sharded.py", version) if line.startswith("{")]
    differences = json.loads(line)

    assert len(differences) == 6
    assert max(differences.values()) < 1e-5
