"""Asking about cards. Only the questions that need an open card take one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import torch

from habana_frameworks.torch.hpu._utils import _get_device_index, init
from hpu_sim.runtime import active_config, native

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "is_available",
    "is_bf16_supported",
    "set_device",
    "synchronize",
]

_MODULES_OF_A_SERVER: Final = 8


def device_count() -> int:
    """Return the cards of this machine, whatever ``HABANA_VISIBLE_MODULES`` says."""
    return active_config().devices


def is_available() -> bool:
    """Return whether this machine has a card."""
    return device_count() > 0


def is_bf16_supported() -> bool:
    """Return whether there is a card: all of them compute in bfloat16."""
    return is_available()


def current_device() -> int:
    """Take a card and return its index in this process, which is always 0."""
    init()
    return 0


def get_device_name(device: Any = None) -> str:
    """Take a card and return its generation: ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``."""
    _get_device_index(device, optional=True)
    init()
    return active_config().generation


def get_device_capability(device: Any = None) -> str:
    """Take a card and return the version of its driver: text, not a pair of numbers."""
    _get_device_index(device, optional=True)
    init()
    return active_config().release.version


def get_device_properties(device: Any = None) -> str:
    """Take a card and return its properties as text of ``name=value`` pairs."""
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


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Take a card and return whether the two cards exist: those of a machine reach each other."""
    init()
    for index in (device, peer_device):
        _get_device_index(index, optional=True)
    return True


def synchronize() -> None:
    """Wait until the device has run everything. There is no device argument, as on the bridge."""
    init()
    native().synchronize()


def get_arch_list() -> list[str]:
    """Take a card and return its generation in a list."""
    return [get_device_name()]


def get_gencode_flags() -> str:
    """Return no flags: there is no code generator to pass any to."""
    return ""


def set_device(device: Any) -> None:
    """Choose the module that this process will take, by the variable ``HLS_MODULE_ID``.

    Raises:
        AssertionError: If there is no such module, or another one was chosen before.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if device is None or device == torch.device("hpu"):
        # The current device, whatever its module: ZeRO stage 3 of DeepSpeed chooses it so on every rank.
        current_device()
        return
    index = _get_device_index(device)
    visible = os.environ.get("HABANA_VISIBLE_MODULES")
    modules = visible.split(",") if visible else [str(module) for module in range(_MODULES_OF_A_SERVER)]
    if len(modules) > _MODULES_OF_A_SERVER:
        raise AssertionError(
            f"HABANA_VISIBLE_MODULES names {len(modules)} modules, a server has {_MODULES_OF_A_SERVER}"
        )
    chosen = os.environ.get("HLS_MODULE_ID")
    if chosen is not None:
        if index >= len(modules) or modules[index] != chosen:
            raise AssertionError(f"HLS_MODULE_ID={chosen} is set and is not device {index}")
        return
    if visible is None and device_count() < _MODULES_OF_A_SERVER:
        if index != 0:
            raise AssertionError(
                f"Without HLS_MODULE_ID and HABANA_VISIBLE_MODULES only device 0 can be chosen, got {index}"
            )
        return
    os.environ["HLS_MODULE_ID"] = modules[index]


class device:  # noqa: N801 - torch's name
    """Context in which ``idx`` is the current device. A process has one card, so nothing changes."""

    def __init__(self, idx: Any) -> None:
        self.idx = _get_device_index(idx, optional=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class device_of(device):  # noqa: N801 - torch's name
    """Context in which the device of a tensor is the current one."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.get_device() if obj.device.type == "hpu" else None)
