"""What torch's core asks an accelerator."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.needs_torch("2.6", "torch.accelerator")
def test_the_card_is_torchs_accelerator() -> None:
    """Programs that ask for any accelerator find it."""
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("hpu")
    for device in ((), ("hpu",), (torch.device("hpu"),)):
        assert torch.get_device_module(*device) is torch.hpu  # type: ignore[attr-defined] # Added at run time.


@pytest.mark.needs_torch("2.6", "torch.accelerator")
def test_the_cards_of_the_machine_are_counted() -> None:
    """A process sees how many there are, and has index 0."""
    assert torch.accelerator.device_count() == 2
    assert torch.accelerator.current_device_index() == 0


@pytest.mark.needs_torch("2.9", "torch.accelerator with memory")
def test_the_memory_of_the_accelerator_is_the_cards() -> None:
    """In use, at its peak, and what the bridge calls reserved."""
    kept = torch.empty(1 << 10, device="hpu")
    card = torch.hpu.memory_stats()  # type: ignore[attr-defined] # Added at run time.

    assert torch.accelerator.memory_allocated() == card["InUse"] >= kept.nbytes
    assert torch.accelerator.max_memory_allocated() == card["MaxInUse"]
    assert torch.accelerator.memory_reserved() == card["Limit"]


@pytest.mark.needs_torch("2.10", "torch.accelerator with free memory")
def test_the_free_memory_of_the_accelerator_is_the_cards() -> None:
    """And how much there is in all."""
    assert torch.accelerator.get_memory_info() == torch.hpu.mem_get_info()  # type: ignore[attr-defined] # Added at run time.


@pytest.mark.needs_torch("2.9", "torch.accelerator with memory")
def test_the_memory_of_the_accelerator_is_counted_anew() -> None:
    """The peak and the number of allocations; emptying a cache that the card does not have gives nothing back."""
    del_me = torch.empty(1 << 20, device="hpu")
    before = torch.accelerator.memory_allocated()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_allocated() == before
    del del_me

    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()

    assert torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated() < before
    assert torch.accelerator.memory_stats()["allocation.all.allocated"] == 0


def test_a_tensor_knows_its_device() -> None:
    """Its type, index and printed form."""
    x = torch.ones(1, device="hpu")

    assert (x.device.type, x.device.index, x.get_device()) == ("hpu", 0, 0)
    assert x.type() == "torch.hpu.FloatTensor"
