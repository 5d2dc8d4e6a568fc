"""Memory functions of `torch.hpu`."""

from __future__ import annotations

import pytest
import torch
from habana_frameworks.torch import hpu

_LIMIT = 96 * 2**30


@pytest.fixture
def block() -> torch.Tensor:
    """Return 4000 bytes on the device, allocated after a reset of the statistics."""
    hpu.reset_peak_memory_stats()
    hpu.reset_accumulated_memory_stats()
    return torch.empty(1000, device="hpu")


def test_active_allocations_are_those_not_freed(block: torch.Tensor) -> None:
    del_me = torch.empty(10, device="hpu")
    del del_me

    stats = hpu.memory_stats()

    assert (stats["NumAllocs"], stats["NumFrees"], stats["ActiveAllocs"]) == (2, 1, 1)
    assert block.numel() == 1000


def test_the_largest_allocation_is_reported(block: torch.Tensor) -> None:
    """It is the largest since the start of the process."""
    assert hpu.memory_stats()["MaxAllocSize"] >= 4000


def test_memory_in_use_has_three_names(block: torch.Tensor) -> None:
    in_use = hpu.memory_stats()["InUse"]

    assert hpu.memory_allocated() == hpu.memory_usage() == in_use >= 4000


def test_the_peak_lasts_until_it_is_reset(block: torch.Tensor) -> None:
    """Freeing memory does not lower it."""
    more = torch.empty(1000, device="hpu")
    in_use = hpu.memory_allocated()
    del more

    assert hpu.max_memory_allocated() == hpu.memory_stats()["MaxInUse"] == in_use
    assert hpu.reset_peak_memory_stats() is None
    assert hpu.max_memory_allocated() == in_use - 4000
    assert block.numel() == 1000


def test_all_memory_is_reserved() -> None:
    """The bridge reserves the whole device."""
    assert hpu.memory_reserved() == hpu.max_memory_reserved() == _LIMIT


@pytest.mark.parametrize("name", ["memory_cached", "max_memory_cached"])
def test_the_older_names_warn(name: str) -> None:
    """The warnings name the replacements."""
    successor = name.replace("cached", "reserved")

    with pytest.warns(FutureWarning, match=rf"torch\.hpu\.{name} has been renamed to torch\.hpu\.{successor}"):
        assert getattr(hpu, name)() == _LIMIT


def test_mem_get_info_returns_free_and_total_memory(block: torch.Tensor) -> None:
    free, total = hpu.mem_get_info()

    assert total == _LIMIT
    assert free == total - hpu.memory_allocated()
    assert block.numel() == 1000


def test_the_summary_is_text_and_says_simulated() -> None:
    summary = hpu.memory_summary()

    assert "HPU memory (simulated)" in summary
    assert all(name in summary for name in hpu.memory_stats())


@pytest.mark.parametrize("device", [None, 0, "hpu", torch.device("hpu")], ids=repr)
def test_every_form_of_a_device_argument_works(device: object) -> None:
    assert hpu.memory_allocated(device) == hpu.memory_stats(device)["InUse"]


def test_another_device_is_an_error() -> None:
    """The machine has two devices."""
    with pytest.raises(AssertionError, match="Invalid device id"):
        hpu.memory_stats(2)
