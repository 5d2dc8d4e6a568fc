"""Device initialization and device arguments."""

from __future__ import annotations

from typing import Any

import torch

from hpu_sim.device import runtime


def is_initialized() -> bool:
    """Return whether this process has acquired a device."""
    return runtime.has_device()


def init() -> None:
    """Acquire a device for this process unless it has one, and make it the default of activation checkpointing.

    Raises:
        RuntimeError: If no device is free, or if the parent had acquired one when it forked this process.
    """
    runtime.acquire_device()


def _lazy_init() -> None:
    """Acquire a device; torch calls this before it creates the first hpu tensor."""
    init()


def _is_in_bad_fork() -> bool:
    """Return whether the parent had acquired a device when it forked this process."""
    # hpu-doctor verify: forked-child-gets-no-numbers
    return runtime.is_in_bad_fork()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the device index of a device argument.

    Args:
        device: An int, a string such as ``"hpu:0"``, a ``torch.device``, or None.
        optional: Whether None and a device without an index mean the current device.
        allow_cpu: Whether the CPU is accepted, as -1.

    Raises:
        ValueError: If it is not an hpu device, or has no index where one is required.
        AssertionError: If the machine has no device of that index.
    """
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
    if not 0 <= device < runtime.active_config().devices:
        raise AssertionError("Invalid device id")
    return int(device)
