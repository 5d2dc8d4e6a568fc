"""``htexp``: the card's generation and what follows from it, without taking the card."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from habana_frameworks.torch import hpu
from hpu_sim.runtime import active_config

if TYPE_CHECKING:
    import torch

__all__ = ["_data_ptr", "_get_device_type", "_is_fp16_supported", "hpu", "synDeviceType"]


class synDeviceType(enum.Enum):  # noqa: N801 - the bridge's name
    """Generations, with the names that SynapseAI gives them."""

    synDeviceGaudi = 1  # noqa: N815 - the bridge's name
    synDeviceGaudi2 = 4  # noqa: N815 - as above
    synDeviceGaudi3 = 5  # noqa: N815 - as above


_TYPES: Final = {
    "GAUDI": synDeviceType.synDeviceGaudi,
    "GAUDI2": synDeviceType.synDeviceGaudi2,
    "GAUDI3": synDeviceType.synDeviceGaudi3,
}


def _get_device_type() -> synDeviceType:
    """Return the generation of the machine's cards."""
    return _TYPES[active_config().generation]


def _is_fp16_supported() -> bool:
    """Return whether the cards compute in float16: all but the first generation do."""
    return active_config().generation != "GAUDI"


def _data_ptr(tensor: torch.Tensor) -> int:
    """Return the address of the tensor's first element."""
    return tensor.data_ptr()
