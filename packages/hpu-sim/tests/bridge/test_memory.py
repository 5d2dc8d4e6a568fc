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


def test_statistics_count_allocations(block: torch.Tensor) -> None:
    """The largest allocation is that since the start of the process."""
    del_me = torch.empty(10, device="hpu")
    del del_me

    stats = hpu.memory_stats()

    assert (stats["NumAllocs"], stats["NumFrees"], stats["ActiveAllocs"]) == (2, 1, 1)
    assert stats["MaxAllocSize"] >= block.nbytes == 4000
    assert hpu.memory_allocated() == hpu.memory_usage() == stats["InUse"] >= 4000
    assert hpu.mem_get_info() == (_LIMIT - stats["InUse"], _LIMIT)
    assert hpu.memory_reserved() == hpu.max_memory_reserved() == _LIMIT


def test_the_peak_lasts_until_it_is_reset(block: torch.Tensor) -> None:
    more = torch.empty(1000, device="hpu")
    in_use = hpu.memory_allocated()
    del more

    assert hpu.max_memory_allocated() == hpu.memory_stats()["MaxInUse"] == in_use
    assert hpu.reset_peak_memory_stats() is None
    assert hpu.max_memory_allocated() == in_use - 4000
    assert block.numel() == 1000


@pytest.mark.parametrize("name", ["memory_cached", "max_memory_cached"])
def test_the_older_names_warn(name: str) -> None:
    successor = name.replace("cached", "reserved")

    with pytest.warns(FutureWarning, match=rf"torch\.hpu\.{name} has been renamed to torch\.hpu\.{successor}"):
        assert getattr(hpu, name)() == _LIMIT


def test_the_summary_is_text_and_says_simulated() -> None:
    summary = hpu.memory_summary()

    assert "HPU memory (simulated)" in summary
    assert all(name in summary for name in hpu.memory_stats())


@pytest.mark.parametrize("device", [None, 0, "hpu", torch.device("hpu")], ids=repr)
def test_every_form_of_a_device_argument_works(device: object) -> None:
    assert hpu.memory_allocated(device) == hpu.memory_stats(device)["InUse"]


def test_another_device_is_an_error() -> None:
    with pytest.raises(AssertionError, match="Invalid device id"):
        hpu.memory_stats(2)
