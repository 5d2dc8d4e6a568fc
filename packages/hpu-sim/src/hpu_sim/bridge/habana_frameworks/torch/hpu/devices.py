"""Device queries. Only those that need an open device acquire one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import torch

from habana_frameworks.torch.hpu._utils import _get_device_index, init
from hpu_sim.device.runtime import active_config, native

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "current_device",
    "device",
    "device_count",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "is_bf16_supported",
    "set_device",
    "synchronize",
]

_MAX_MODULES: Final = 8


def device_count() -> int:
    """Return the number of devices of the machine, regardless of ``HABANA_VISIBLE_MODULES``.

    As in the bridge, it is also an attribute of the function, ``_device_count``, after the first call.
    """
    devices = active_config().devices
    setattr(device_count, "_device_count", devices)  # noqa: B010 - mypy knows no attributes of functions
    return devices


def is_available() -> bool:
    """Return whether the machine has a device."""
    return device_count() > 0


def is_bf16_supported() -> bool:
    """Return whether the machine has a device: all of them support bfloat16."""
    return is_available()


def current_device() -> int:
    """Acquire a device and return its index in this process, which is always 0."""
    init()
    return 0


def get_device_name(device: Any = None) -> str:
    """Acquire a device and return its generation: ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``."""
    _get_device_index(device, optional=True)
    init()
    return active_config().generation


def get_device_capability(device: Any = None) -> str:
    """Acquire a device and return the version of its driver, a string."""
    _get_device_index(device, optional=True)
    init()
    return active_config().release.version


def get_device_properties(device: Any = None) -> str:
    """Acquire a device and return its properties, a string of ``name=value`` pairs."""
    _get_device_index(device, optional=True)
    init()
    config = active_config()
    properties = {
        "sramBaseAddress": 0,
        "dramBaseAddress": 0,
        "sramSize": 0,
        "dramSize": config.memory_bytes,
        "tpcEnabledMask": 0,
        "dramEnabled": 1,
        "fd": -1,
        "device_id": 0,
        "device_type": config.generation,
    }
    pairs = ", ".join(f"{name}={value}" for name, value in properties.items())
    return f"({pairs})"


def synchronize() -> None:
    """Wait for the device. As in the bridge, there is no device argument."""
    init()
    native().synchronize()


def set_device(device: Any) -> None:
    """Select the module that this process will acquire, by setting ``HLS_MODULE_ID``.

    If ``HLS_MODULE_ID`` is set already, it stays, whatever the index is.

    Raises:
        AssertionError: If the device does not exist, or ``HABANA_VISIBLE_MODULES`` lacks the module.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if device is None or device == torch.device("hpu"):
        # The current device on every rank; DeepSpeed's ZeRO stage 3 selects it this way.
        current_device()
        return
    index = _get_device_index(device)
    visible = os.environ.get("HABANA_VISIBLE_MODULES")
    modules = visible.split(",") if visible else [str(module) for module in range(_MAX_MODULES)]
    if len(modules) > _MAX_MODULES:
        raise AssertionError(f"HABANA_VISIBLE_MODULES must have at most {_MAX_MODULES} modules, got {len(modules)}")
    selected = os.environ.get("HLS_MODULE_ID")
    if selected is not None:
        if selected not in modules:
            raise AssertionError(f"HLS_MODULE_ID must be one of the modules {','.join(modules)}, got {selected}")
        return
    if visible is None and device_count() < _MAX_MODULES:
        if index != 0:
            raise AssertionError(f"`device` must be 0 without HLS_MODULE_ID and HABANA_VISIBLE_MODULES, got {index}")
        return
    os.environ["HLS_MODULE_ID"] = modules[index]


class device:  # noqa: N801 - torch's name
    """Context manager that selects a device. It has no effect, because a process has one device.

    Raises:
        AssertionError: If it is not this process's device, which has index 0.
    """

    def __init__(self, idx: Any) -> None:
        self.idx = _get_device_index(idx, optional=True)
        if self.idx != 0:
            raise AssertionError("Invalid device id")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None
