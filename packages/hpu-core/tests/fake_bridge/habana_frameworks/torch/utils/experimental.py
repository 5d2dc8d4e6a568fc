"""Fake `experimental`, which has the device type without opening the device."""

import enum


class synDeviceType(enum.Enum):  # noqa: N801 - the bridge's name.
    """The bridge's enum."""

    synDeviceGaudi2 = 4  # noqa: N815 - the bridge's name.


def _get_device_type() -> synDeviceType:
    return synDeviceType.synDeviceGaudi2


def _is_fp16_supported() -> bool:
    return True
