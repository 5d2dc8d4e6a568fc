"""What Lightning's callbacks ask of functions that know CUDA alone: peak FLOP/s, the type of a precision, memory."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpu_core.registration import _connectors

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName


def available_flops(original: Callable[..., Any], framework: "FrameworkName") -> Callable[..., Any]:
    """Return a function that knows the peak FLOP/s of a card, for Lightning's `get_available_flops`.

    Args:
        original: Lightning's.
        framework: Whose it is.
    """

    @functools.wraps(original)
    def get_available_flops(device: Any, dtype: Any) -> Any:
        if device.type != "hpu" or _connectors.refusal(framework) is not None:
            return original(device, dtype)
        from hpu_core import throughput

        return throughput.peak_flops_of_machine(dtype)

    return get_available_flops


def compute_dtype(original: Callable[..., Any], framework: "FrameworkName") -> Callable[..., Any]:  # noqa: ARG001 - as the others.
    """Return a function that asks a precision plugin for its type first, for Lightning's `_plugin_to_compute_dtype`."""

    @functools.wraps(original)
    def plugin_to_compute_dtype(plugin: Any) -> Any:
        dtype = getattr(plugin, "compute_dtype", None)
        return original(plugin) if dtype is None else dtype

    return plugin_to_compute_dtype


def out_of_memory(original: Callable[..., Any], framework: "FrameworkName") -> Callable[..., Any]:  # noqa: ARG001 - as above.
    """Return a function that knows a card's error, too, for Lightning's `is_oom_error`, which BatchSizeFinder asks."""

    @functools.wraps(original)
    def is_oom_error(exception: BaseException) -> Any:
        from hpu_core import bridge

        return original(exception) or bridge.is_out_of_memory(exception)

    return is_oom_error
