"""Legacy check for devices."""

from habana_frameworks.torch import hpu


def is_habana_available() -> bool:
    """Return whether the machine has a device."""
    return bool(hpu.is_available())
