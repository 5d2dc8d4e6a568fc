"""Flags of the graph compiler, and deterministic algorithms.

Programs can read the flags back. Apart from that they have no effect, because the simulator compiles nothing.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

import torch

from hpu_sim.device.features import features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "disable_const_section_serialization",
    "disable_dynamic_shape",
    "disable_inference_mode",
    "disable_matmul3d_2d_reshape",
    "disable_optim_output_sif",
    "disable_quantization",
    "enable_const_section_serialization",
    "enable_dynamic_shape",
    "enable_inference_mode",
    "enable_matmul3d_2d_reshape",
    "enable_optim_output_sif",
    "enable_quantization",
    "enable_recompute_sdp",
    "getDeterministic",
    "get_dynamic_shape_status",
    "recompute_sdp_enabled",
    "sdp_kernel",
    "setDeterministic",
]
if features().after_1_19:
    __all__ += ["is_inference_mode_enabled", "is_matmul3d_2d_reshape_enabled"]

_flags: dict[str, bool] = {"recompute_sdp": True}


def _switch(flag: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the functions ``enable_FLAG`` and ``disable_FLAG`` of a flag that is off."""

    def make(verb: str, value: bool) -> Callable[[], None]:
        def switch() -> None:
            _flags[flag] = value

        switch.__name__ = switch.__qualname__ = f"{verb}_{flag}"
        switch.__doc__ = f"{verb.capitalize()} the flag `{flag}` of the graph compiler."
        return switch

    _flags[flag] = False
    return make("enable", True), make("disable", False)


# Compile graphs for ranges of shapes; infer only the shapes of a graph's outputs; compile for quantized models and for
# inference; fold the batch dimension of 3D matrix products into their rows.
enable_dynamic_shape, disable_dynamic_shape = _switch("dynamic_shape")
enable_optim_output_sif, disable_optim_output_sif = _switch("optim_output_sif")
enable_quantization, disable_quantization = _switch("quantization")
enable_inference_mode, disable_inference_mode = _switch("inference_mode")
enable_matmul3d_2d_reshape, disable_matmul3d_2d_reshape = _switch("matmul3d_2d_reshape")


def get_dynamic_shape_status() -> bool:
    """Return whether graphs are compiled for ranges of shapes."""
    return _flags["dynamic_shape"]


def is_inference_mode_enabled() -> bool:
    """Return whether graphs are compiled for inference."""
    return _flags["inference_mode"]


def is_matmul3d_2d_reshape_enabled() -> bool:
    """Return whether the batch dimension of 3D matrix products is folded."""
    return _flags["matmul3d_2d_reshape"]


def enable_const_section_serialization(path: str, clear_path: bool, use_compression: bool) -> None:
    """Write the constants of compiled graphs to a folder; the simulator has none, and writes nothing."""


def disable_const_section_serialization() -> None:
    """Keep the constants of compiled graphs in memory."""


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


def setDeterministic(val: bool) -> None:  # noqa: N802 - the bridge's name
    """Set whether algorithms must be deterministic; use ``torch.use_deterministic_algorithms``."""
    _warn_deprecated("setDeterministic")
    torch.use_deterministic_algorithms(bool(val))


def getDeterministic() -> bool:  # noqa: N802 - the bridge's name
    """Return whether algorithms must be deterministic; use ``torch.are_deterministic_algorithms_enabled``."""
    _warn_deprecated("getDeterministic")
    return torch.are_deterministic_algorithms_enabled()


def _warn_deprecated(name: str) -> None:
    warnings.warn(f"{name} is deprecated, use torch.use_deterministic_algorithms", UserWarning, stacklevel=3)
