"""What torch's core asks an accelerator."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.needs_torch("2.6", "torch.accelerator")
def test_the_card_is_torchs_accelerator() -> None:
    """Programs that ask for any accelerator find it."""
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("hpu")


@pytest.mark.needs_torch("2.6", "torch.accelerator")
def test_the_cards_of_the_machine_are_counted() -> None:
    """A process sees how many there are, and has index 0."""
    assert torch.accelerator.device_count() == 2
    assert torch.accelerator.current_device_index() == 0


@pytest.mark.needs_torch("2.3", "get_device_module")
def test_the_device_module_is_torch_hpu() -> None:
    """By name and by device."""
    assert torch.get_device_module("hpu") is torch.hpu  # type: ignore[attr-defined]
    assert torch.get_device_module(torch.device("hpu")) is torch.hpu  # type: ignore[attr-defined]


@pytest.mark.needs_torch("2.6", "torch.accelerator")
def test_the_device_module_of_the_accelerator_is_torch_hpu() -> None:
    """By default."""
    assert torch.get_device_module() is torch.hpu  # type: ignore[attr-defined]


def test_a_tensor_knows_its_device() -> None:
    """Its type, index and printed form."""
    x = torch.ones(1, device="hpu")

    assert (x.device.type, x.device.index, x.get_device()) == ("hpu", 0, 0)
    assert x.type() == "torch.hpu.FloatTensor"
