"""Switches that the bridge has had since 1.19."""

from __future__ import annotations

from ._toggles import switches  # Relative, so that type checkers find it too.

__all__ = [
    "is_inference_mode_enabled",
    "is_matmul3d_2d_reshape_enabled",
    "set_mark_non_scale_const",
    "set_mark_scale_const",
]


def is_inference_mode_enabled() -> bool:
    """Return whether graphs are compiled for inference."""
    return switches["inference_mode"]


def is_matmul3d_2d_reshape_enabled() -> bool:
    """Return whether batches of matrix products are folded."""
    return switches["matmul3d_2d_reshape"]


def set_mark_scale_const(val: bool) -> None:
    """Say whether scales are constants."""
    switches["mark_scale_const"] = bool(val)


def set_mark_non_scale_const(val: bool) -> None:
    """Say whether weights other than scales are constants."""
    switches["mark_non_scale_const"] = bool(val)
