"""Flags of the graph compiler.

Programs can read the flags back. Apart from that they have no effect, because the simulator compiles nothing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hpu_sim.device.features import features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "disable_dynamic_shape",
    "disable_inference_mode",
    "enable_dynamic_shape",
    "enable_inference_mode",
    "enable_recompute_sdp",
    "get_dynamic_shape_status",
    "recompute_sdp_enabled",
    "sdp_kernel",
]
if features().after_1_19:
    __all__ += ["is_inference_mode_enabled"]

_flags: dict[str, bool] = {"recompute_sdp": True}


def _switch(flag: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the functions ``enable_FLAG`` and ``disable_FLAG`` of a flag that is off."""

    def make(action: str, value: bool) -> Callable[[], None]:
        def switch() -> None:
            _flags[flag] = value

        switch.__name__ = switch.__qualname__ = f"{action}_{flag}"
        switch.__doc__ = f"{action.capitalize()} the flag `{flag}` of the graph compiler."
        return switch

    _flags[flag] = False
    return make("enable", True), make("disable", False)


# Compile graphs for ranges of shapes, and for inference.
enable_dynamic_shape, disable_dynamic_shape = _switch("dynamic_shape")
enable_inference_mode, disable_inference_mode = _switch("inference_mode")


def get_dynamic_shape_status() -> bool:
    """Return whether graphs are compiled for ranges of shapes."""
    return _flags["dynamic_shape"]


def is_inference_mode_enabled() -> bool:
    """Return whether graphs are compiled for inference."""
    return _flags["inference_mode"]


def enable_recompute_sdp(enabled: bool) -> None:
    """Set whether the backward pass of ``FusedSDPA`` recomputes the attention instead of keeping it."""
    _flags["recompute_sdp"] = bool(enabled)


def recompute_sdp_enabled() -> bool:
    """Return whether the backward pass of ``FusedSDPA`` recomputes the attention."""
    return _flags["recompute_sdp"]


@contextlib.contextmanager
def sdp_kernel(enable_recompute: bool = True) -> Iterator[None]:
    """Return a context manager that sets whether the backward pass of ``FusedSDPA`` recomputes the attention."""
    before = recompute_sdp_enabled()
    enable_recompute_sdp(enable_recompute)
    try:
        yield
    finally:
        enable_recompute_sdp(before)
