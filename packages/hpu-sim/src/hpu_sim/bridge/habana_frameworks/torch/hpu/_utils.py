"""Reading device arguments."""

from __future__ import annotations

from typing import Any

import torch


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index that a device argument means.

    Args:
        device: An int, a string such as ``"hpu:0"``, a ``torch.device``, or None.
        optional: Whether None and a device without an index mean the current device.
        allow_cpu: Whether the CPU is accepted, as -1.

    Raises:
        ValueError: If it is not an hpu device, or has no index where one is needed.
        AssertionError: If the machine has no card of that index.
    """
    from habana_frameworks.torch.hpu.devices import device_count

    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "hpu":
            raise ValueError(f"Expected a hpu device, but got: {device}")
        device = device.index
    if device is None:
        if not optional:
            raise ValueError("Expected a hpu device with a specified index or an integer, but got: None")
        return 0
    if not 0 <= device < device_count():
        raise AssertionError("Invalid device id")
    return int(device)
