"""Device memory. As in the bridge, every function acquires a device."""

from __future__ import annotations

import warnings
from typing import Any

from habana_frameworks.torch.hpu._utils import _get_device_index, init
from hpu_sim.device.runtime import native

__all__ = [
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "memory_usage",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def _stats(device: Any) -> dict[str, int]:
    _get_device_index(device, optional=True)
    init()
    return native().memory_stats()


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return the bridge's ten statistics in its order.

    ``Limit``, ``InUse``, ``MaxInUse`` and ``MaxAllocSize`` are bytes, the rest are counts.
    """
    stats = _stats(device)
    active = stats["num_allocs"] - stats["num_frees"]
    return {
        "Limit": stats["limit"],
        "InUse": stats["in_use"],
        "MaxInUse": stats["max_in_use"],
        "NumAllocs": stats["num_allocs"],
        "NumFrees": stats["num_frees"],
        "ActiveAllocs": active,
        "MaxAllocSize": stats["max_alloc_size"],
        "TotalSystemAllocs": stats["num_allocs"],
        "TotalSystemFrees": stats["num_frees"],
        "TotalActiveAllocs": active,
    }


def memory_allocated(device: Any = None) -> int:
    """Return the memory in use, in bytes."""
    return _stats(device)["in_use"]


def max_memory_allocated(device: Any = None) -> int:
    """Return the peak of the memory in use, in bytes."""
    return _stats(device)["max_in_use"]


def memory_reserved(device: Any = None) -> int:
    """Return the memory of the device, in bytes: the bridge reserves all of it."""
    return _stats(device)["limit"]


max_memory_reserved = memory_reserved


def memory_cached(device: Any = None) -> int:
    """Return the memory of the device, in bytes; a deprecated alias of :func:`memory_reserved`."""
    warnings.warn("torch.hpu.memory_cached has been renamed to torch.hpu.memory_reserved", FutureWarning, stacklevel=2)
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """Return the memory of the device, in bytes; a deprecated alias of :func:`max_memory_reserved`."""
    warnings.warn(
        "torch.hpu.max_memory_cached has been renamed to torch.hpu.max_memory_reserved", FutureWarning, stacklevel=2
    )
    return memory_reserved(device)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return free and total memory, in bytes."""
    stats = _stats(device)
    return stats["limit"] - stats["in_use"], stats["limit"]


memory_usage = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peak to the memory in use."""
    _stats(device)
    native().reset_peak_memory()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Reset the counters of allocations."""
    _stats(device)
    native().reset_accumulated_memory()


def memory_summary(device: Any = None) -> str:
    """Return :func:`memory_stats` as a table."""
    stats = memory_stats(device)
    rows = "\n".join(f"| {name:<18} | {value:>20} |" for name, value in stats.items())
    rule = "=" * 45
    return f"{rule}\n| {'HPU memory (simulated)':<41} |\n{rule}\n{rows}\n{rule}"
