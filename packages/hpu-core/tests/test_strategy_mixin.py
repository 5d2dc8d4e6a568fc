"""Tests of the validation of a strategy's devices."""

import pytest
import torch

from hpu_core._strategy_mixin import validate_devices


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "hpu:1"])
def test_other_devices_raise_an_error(device: str) -> None:
    with pytest.raises(ValueError, match=f"MyStrategy trains on HPUs only: .*'{device}'.*HABANA_VISIBLE_MODULES"):
        validate_devices([torch.device("hpu"), torch.device(device)], "MyStrategy")


def test_device_indices_are_removed() -> None:
    devices = [torch.device("hpu"), torch.device("hpu", 0)]

    assert validate_devices(devices, "MyStrategy") == [torch.device("hpu")] * 2


def test_none_is_valid() -> None:
    """The Trainer assigns the devices later."""
    assert validate_devices(None, "MyStrategy") is None
