"""The state of ``torch.autocast("hpu")``, which torch below 2.4 reads and sets through these functions."""

from __future__ import annotations

from typing import Any

import torch

__all__ = [
    "get_autocast_hpu_dtype",
    "is_autocast_hpu_enabled",
    "set_autocast_hpu_dtype",
    "set_autocast_hpu_enabled",
]

# torch < 2.4 has no such functions for hpu in Python: there autocast is the dispatch key, and its dtype is fixed.
_HAS_STATE = hasattr(torch, "get_autocast_dtype")


def is_autocast_hpu_enabled() -> bool:
    """Return whether operators cast their inputs in this thread."""
    if _HAS_STATE:
        return torch.is_autocast_enabled("hpu")
    return not torch._C._dispatch_tls_is_dispatch_key_excluded(_autocast_key())  # noqa: SLF001 - see above


def set_autocast_hpu_enabled(enabled: bool) -> None:
    """Say whether operators cast their inputs in this thread."""
    if _HAS_STATE:
        torch.set_autocast_enabled("hpu", enabled)
    else:
        torch._C._dispatch_tls_set_dispatch_key_excluded(_autocast_key(), not enabled)  # noqa: SLF001 - see above


def get_autocast_hpu_dtype() -> torch.dtype:
    """Return the lower precision that operators cast to."""
    return torch.get_autocast_dtype("hpu") if _HAS_STATE else torch.bfloat16


def set_autocast_hpu_dtype(dtype: torch.dtype) -> None:
    """Set the lower precision that operators cast to.

    Raises:
        RuntimeError: If it is not bfloat16 and torch is older than 2.4, which keeps hpu's in C++.
    """
    if _HAS_STATE:
        torch.set_autocast_dtype("hpu", dtype)
    elif dtype != torch.bfloat16:
        raise RuntimeError(f"autocast on simulated hpu is bfloat16 only with torch {torch.__version__}, got {dtype}")


def _autocast_key() -> Any:
    return getattr(torch._C.DispatchKey, "AutocastHPU")  # noqa: B009, SLF001 - torch declares but some of the keys
