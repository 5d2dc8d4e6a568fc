"""Memory of a strict device: rounded as the bridge's."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

import pytest
import torch

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable


def _in_use() -> int:
    return native().memory_stats()["in_use"]


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(("size", "charged"), [(1, 0), (255, 0), (256, 256), (257, 384), (4000, 4096), (4096, 4096)])
def test_the_memory_in_use_grows_as_the_rules_say(size: int, charged: int) -> None:
    gc.collect()
    before = _in_use()
    x = torch.zeros(size, dtype=torch.uint8, device="hpu")

    assert _in_use() - before == charged
    del x
    assert _in_use() == before


@pytest.mark.usefixtures("strict")
def test_small_blocks_change_counts_only() -> None:
    before = native().memory_stats()
    x = torch.zeros(4, device="hpu")
    after = native().memory_stats()

    assert x.numel() == 4
    assert (after["in_use"] - before["in_use"], after["num_allocs"] - before["num_allocs"]) == (0, 1)


_ROUNDED: Final = """
import torch

x = torch.zeros(513, dtype=torch.uint8, device="hpu")
print(torch.hpu.memory_allocated())
"""


@pytest.mark.parametrize(("generation", "charged"), [("GAUDI2", 640), ("GAUDI3", 768)])
def test_blocks_are_multiples_of_the_generation(output_of: Callable[..., str], generation: str, charged: int) -> None:
    """128 bytes, and 256 on GAUDI3."""
    output = output_of(_ROUNDED, HPU_SIM_DEVICES="1", HPU_SIM_STRICT="1", HPU_SIM_GENERATION=generation)

    assert output.splitlines()[-1] == str(charged)
