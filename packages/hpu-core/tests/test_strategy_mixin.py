"""What a strategy accepts as the card of its process."""

import pytest
import torch

from hpu_core._strategy_mixin import validate_devices


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "hpu:1"])
def test_other_devices_are_refused(device: str) -> None:
    """The error names the strategy, the device, and what to do."""
    with pytest.raises(ValueError, match=f"AStrategy trains on HPUs only: .*'{device}'.*HABANA_VISIBLE_MODULES"):
        validate_devices([torch.device("hpu"), torch.device(device)], "AStrategy")


def test_several_devices_have_no_index() -> None:
    """However the cards are spelled, each is "hpu"."""
    devices = [torch.device("hpu"), torch.device("hpu", 0)]

    assert validate_devices(devices, "AStrategy") == [torch.device("hpu")] * 2


def test_no_devices_are_no_devices() -> None:
    """The Trainer assigns them later."""
    assert validate_devices(None, "AStrategy") is None
