"""Deprecated names of three queries; use ``torch.hpu``."""

from __future__ import annotations

import warnings
from typing import Any

from habana_frameworks.torch import hpu


def is_available() -> bool:
    """Return whether this machine has a card; use ``torch.hpu.is_available``."""
    _warn("is_available")
    return bool(hpu.is_available())


def device_count() -> int:
    """Return the cards of this machine; use ``torch.hpu.device_count``."""
    _warn("device_count")
    return int(hpu.device_count())


def get_device_name(device: Any = None) -> str:
    """Take a card and return its generation; use ``torch.hpu.get_device_name``."""
    _warn("get_device_name")
    return str(hpu.get_device_name(device))


def _warn(name: str) -> None:
    warnings.warn(f"torch_hpu.{name} is deprecated, use torch.hpu.{name}", DeprecationWarning, stacklevel=3)
