"""What torch's core asks an accelerator."""

from __future__ import annotations

import torch


def test_the_card_is_torchs_accelerator() -> None:
    """Programs that ask for any accelerator find it."""
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("hpu")


def test_the_cards_of_the_machine_are_counted() -> None:
    """A process sees how many there are, and has index 0."""
    assert torch.accelerator.device_count() == 2
    assert torch.accelerator.current_device_index() == 0


def test_the_device_module_is_torch_hpu() -> None:
    """By name, by device, and by default."""
    expected = torch.get_device_module("hpu")

    assert torch.get_device_module(torch.device("hpu")) is expected
    assert torch.get_device_module() is expected


def test_a_tensor_knows_its_device() -> None:
    """Its type, index and printed form."""
    x = torch.ones(1, device="hpu")

    assert (x.device.type, x.device.index, x.get_device()) == ("hpu", 0, 0)
    assert x.type() == "torch.hpu.FloatTensor"
