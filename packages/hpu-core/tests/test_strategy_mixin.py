"""Tests of the devices of a strategy for several of them."""

import pytest
import torch

from hpu_core._strategy_mixin import HPUStrategyMixin


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "hpu:1"])
def test_other_devices_raise_an_error(device: str) -> None:
    with pytest.raises(ValueError, match=f"HPUStrategyMixin trains on HPUs only: .*'{device}'.*HABANA_VISIBLE_MODULES"):
        HPUStrategyMixin().parallel_devices = [torch.device("hpu"), torch.device(device)]


def test_device_indices_are_removed() -> None:
    strategy = HPUStrategyMixin()
    strategy.parallel_devices = [torch.device("hpu"), torch.device("hpu", 0)]

    assert strategy.parallel_devices == [torch.device("hpu")] * 2


def test_none_is_valid() -> None:
    """The Trainer assigns the devices later."""
    strategy = HPUStrategyMixin()
    strategy.parallel_devices = None

    assert strategy.parallel_devices is None
