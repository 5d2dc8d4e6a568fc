"""State of ``torch.autocast("hpu")``. torch < 2.4 reads and sets it through these functions."""

from __future__ import annotations

from typing import Any

import torch

__all__ = [
    "get_autocast_hpu_dtype",
    "is_autocast_hpu_enabled",
    "set_autocast_hpu_dtype",
    "set_autocast_hpu_enabled",
]

# In torch < 2.4 autocast for hpu is only a dispatch key, and its dtype is fixed.
_HAS_STATE = hasattr(torch, "get_autocast_dtype")


def is_autocast_hpu_enabled() -> bool:
    """Return whether autocast is enabled in this thread."""
    if _HAS_STATE:
        return torch.is_autocast_enabled("hpu")
    return not torch._C._dispatch_tls_is_dispatch_key_excluded(_autocast_key())  # noqa: SLF001 - see above


def set_autocast_hpu_enabled(enabled: bool) -> None:
    """Set whether autocast is enabled in this thread."""
    if _HAS_STATE:
        torch.set_autocast_enabled("hpu", enabled)
    else:
        torch._C._dispatch_tls_set_dispatch_key_excluded(_autocast_key(), not enabled)  # noqa: SLF001 - see above


def get_autocast_hpu_dtype() -> torch.dtype:
    """Return the dtype of autocast."""
    return torch.get_autocast_dtype("hpu") if _HAS_STATE else torch.bfloat16


def set_autocast_hpu_dtype(dtype: torch.dtype) -> None:
    """Set the dtype of autocast.

    Raises:
        RuntimeError: If it is not bfloat16 and torch is older than 2.4, where the dtype is fixed.
    """
    if _HAS_STATE:
        torch.set_autocast_dtype("hpu", dtype)
    elif dtype != torch.bfloat16:
        raise RuntimeError(f"`dtype` must be torch.bfloat16 with torch < 2.4 on simulated hpu, got {dtype}")


def _autocast_key() -> Any:
    return getattr(torch._C.DispatchKey, "AutocastHPU")  # noqa: B009, SLF001 - torch's stubs declare only some keys
