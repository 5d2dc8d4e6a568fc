"""``htexp``: facts of the device's generation, without acquiring a device."""

from __future__ import annotations

import enum
from typing import Final

from habana_frameworks.torch import hpu
from hpu_sim.device.runtime import active_config

__all__ = [
    "_get_device_type",
    "_is_fp16_supported",
    "hpu",
    "synDeviceType",
]


class synDeviceType(enum.Enum):  # noqa: N801 - the bridge's name
    """Device generations under SynapseAI's names."""

    synDeviceGaudi = 1  # noqa: N815 - the bridge's name
    synDeviceGaudi2 = 4  # noqa: N815 - as above
    synDeviceGaudi3 = 5  # noqa: N815 - as above


_TYPES: Final = {
    "GAUDI": synDeviceType.synDeviceGaudi,
    "GAUDI2": synDeviceType.synDeviceGaudi2,
    "GAUDI3": synDeviceType.synDeviceGaudi3,
}


def _get_device_type() -> synDeviceType:
    """Return the generation of the machine's devices."""
    return _TYPES[active_config().generation]


def _is_fp16_supported() -> bool:
    """Return whether the devices support float16, as all but the first generation do."""
    return active_config().generation != "GAUDI"
