"""Switches of the bridge. Those of the graph compiler are kept and given back; the simulator compiles nothing."""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    "get_sync_debug_mode",
    "recompute_sdp_enabled",
    "sdp_kernel",
    "setDeterministic",
    "set_sync_debug_mode",
]

# Where the bridge keeps its debug mode of streams.
_STREAM_VARIABLE: Final = "PT_ENABLE_HABANA_STREAMASYNC"

#: What is switched on.
switches: dict[str, bool] = {
    "dynamic_shape": False,
    "inference_mode": False,
    "mark_non_scale_const": True,
    "mark_scale_const": True,
    "matmul3d_2d_reshape": False,
    "optim_output_sif": False,
    "quantization": False,
    "recompute_sdp": False,
}
_const_sections: list[str] = []


def enable_dynamic_shape() -> None:
    """Let a graph serve more shapes than the one it was compiled for."""
    switches["dynamic_shape"] = True


def disable_dynamic_shape() -> None:
    """Compile a graph for each shape."""
    switches["dynamic_shape"] = False


def get_dynamic_shape_status() -> bool:
    """Return whether dynamic shapes are enabled."""
    return switches["dynamic_shape"]


def enable_optim_output_sif() -> None:
    """Infer the shapes of optimizer outputs early."""
    switches["optim_output_sif"] = True


def disable_optim_output_sif() -> None:
    """Infer the shapes of optimizer outputs as those of any other."""
    switches["optim_output_sif"] = False


def enable_inference_mode() -> None:
    """Compile graphs for inference."""
    switches["inference_mode"] = True


def disable_inference_mode() -> None:
    """Compile graphs for training."""
    switches["inference_mode"] = False


def enable_quantization() -> None:
    """Compile graphs with quantization."""
    switches["quantization"] = True


def disable_quantization() -> None:
    """Compile graphs without quantization."""
    switches["quantization"] = False


def enable_matmul3d_2d_reshape() -> None:
    """Fold the batch of a three-dimensional matrix product into its rows."""
    switches["matmul3d_2d_reshape"] = True


def disable_matmul3d_2d_reshape() -> None:
    """Leave three-dimensional matrix products as they are."""
    switches["matmul3d_2d_reshape"] = False


def enable_const_section_serialization(path: str, clear_path: bool, use_compression: bool) -> None:
    """Keep constants on disk; there are none, so only the path is kept."""
    del clear_path, use_compression
    _const_sections[:] = [path]


def disable_const_section_serialization() -> None:
    """Keep constants in memory."""
    _const_sections.clear()


def enable_recompute_sdp(enable: bool) -> None:
    """Say whether attention is computed anew in the backward pass instead of being kept."""
    switches["recompute_sdp"] = bool(enable)


def recompute_sdp_enabled() -> bool:
    """Return whether attention is computed anew in the backward pass."""
    return switches["recompute_sdp"]


@contextlib.contextmanager
def sdp_kernel(enable_recompute: bool = False) -> Iterator[None]:
    """Return a context in which attention is, or is not, computed anew in the backward pass."""
    before = recompute_sdp_enabled()
    enable_recompute_sdp(enable_recompute)
    try:
        yield
    finally:
        enable_recompute_sdp(before)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Set the debug mode of streams, which lives in the variable ``PT_ENABLE_HABANA_STREAMASYNC``."""
    os.environ[_STREAM_VARIABLE] = str(debug_mode)


def get_sync_debug_mode() -> str | None:
    """Return the debug mode of streams as text, or None where it was never set."""
    return os.environ.get(_STREAM_VARIABLE)


def setDeterministic(val: bool) -> None:  # noqa: N802 - the bridge's name
    """Ask for deterministic algorithms; use ``torch.use_deterministic_algorithms``."""
    _warn_deterministic("setDeterministic")
    torch.use_deterministic_algorithms(bool(val))


def getDeterministic() -> bool:  # noqa: N802 - the bridge's name
    """Return whether algorithms are deterministic; use ``torch.are_deterministic_algorithms_enabled``."""
    _warn_deterministic("getDeterministic")
    return torch.are_deterministic_algorithms_enabled()


def _warn_deterministic(name: str) -> None:
    warnings.warn(f"{name} is deprecated, use torch.use_deterministic_algorithms", DeprecationWarning, stacklevel=3)
