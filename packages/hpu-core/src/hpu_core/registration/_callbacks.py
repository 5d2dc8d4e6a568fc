"""Replacements for functions of Lightning's callbacks that support CUDA only.

Each factory takes Lightning's function and the framework that it belongs to.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpu_core import bridge, frameworks

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName


def get_available_flops(original: Callable[..., Any], framework: "FrameworkName") -> Callable[..., Any]:
    """Return a replacement for `get_available_flops` that knows the peak FLOP/s of Gaudi, for ThroughputMonitor."""

    @functools.wraps(original)
    def wrapper(device: Any, dtype: Any) -> Any:
        if device.type != "hpu" or frameworks.unusable_reason(framework) is not None:
            return original(device, dtype)
        from hpu_core import throughput

        return throughput.peak_flops_of_machine(dtype)

    return wrapper


def plugin_to_compute_dtype(original: Callable[..., Any], _: "FrameworkName") -> Callable[..., Any]:
    """Return a replacement for `_plugin_to_compute_dtype` that honours a plugin's `compute_dtype`."""

    @functools.wraps(original)
    def wrapper(plugin: Any) -> Any:
        dtype = getattr(plugin, "compute_dtype", None)
        return original(plugin) if dtype is None else dtype

    return wrapper


def is_oom_error(original: Callable[..., Any], _: "FrameworkName") -> Callable[..., Any]:
    """Return a replacement for `is_oom_error` that recognises the bridge's errors, for BatchSizeFinder."""

    @functools.wraps(original)
    def wrapper(exception: BaseException) -> Any:
        return original(exception) or bridge.is_out_of_memory(exception)

    return wrapper
