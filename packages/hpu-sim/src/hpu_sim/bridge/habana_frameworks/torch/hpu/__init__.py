"""``torch.hpu``: the device module, with the bridge's names, signatures and return types."""

from habana_frameworks.torch.hpu import _utils, memory, random
from habana_frameworks.torch.hpu.devices import (
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    is_available,
    is_bf16_supported,
    set_device,
    synchronize,
)
from habana_frameworks.torch.hpu.lifecycle import _is_in_bad_fork, _lazy_init, init, is_initialized
from habana_frameworks.torch.hpu.memory import (
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    memory_usage,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from habana_frameworks.torch.hpu.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from habana_frameworks.torch.hpu.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "_initialized",
    "_is_in_bad_fork",
    "_lazy_init",
    "_utils",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_rng_state",
    "get_rng_state_all",
    "hpu",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "memory_usage",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def __getattr__(name: str) -> object:
    # Both change or close a circle, so neither can be a plain name: torch.utils.checkpoint reads `_initialized`, and
    # programs written for the bridge find the module again under `hpu.hpu`.
    if name == "_initialized":
        return is_initialized()
    if name == "hpu":
        import sys

        return sys.modules[__name__]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
