"""Deprecated aliases of three functions of ``torch.hpu``."""

from __future__ import annotations

import warnings
from typing import Any

from habana_frameworks.torch import hpu


def is_available() -> bool:
    """Return whether the machine has a device; use ``torch.hpu.is_available``."""
    _warn_deprecated("is_available")
    return bool(hpu.is_available())


def device_count() -> int:
    """Return the number of devices of the machine; use ``torch.hpu.device_count``."""
    _warn_deprecated("device_count")
    return int(hpu.device_count())


def get_device_name(device: Any = None) -> str:
    """Acquire a device and return its generation; use ``torch.hpu.get_device_name``."""
    _warn_deprecated("get_device_name")
    return str(hpu.get_device_name(device))


def _warn_deprecated(name: str) -> None:
    warnings.warn(f"torch_hpu.{name} is deprecated, use torch.hpu.{name}", DeprecationWarning, stacklevel=3)
