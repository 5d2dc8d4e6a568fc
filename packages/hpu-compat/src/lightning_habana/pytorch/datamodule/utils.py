"""Helpers of the archived package for process groups and Gaudi generations."""

import hpu_core

__all__ = [
    "get_device_string",
    "get_rank",
    "get_world_size",
    "is_dist_avail_and_initialized",
    "is_gaudi",
    "is_gaudi2",
    "is_main_process",
]


def is_dist_avail_and_initialized() -> bool:
    """Return whether there is a process group."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def get_world_size() -> int:
    """Return the number of ranks; 1 without a process group."""
    import torch.distributed as dist

    return dist.get_world_size() if is_dist_avail_and_initialized() else 1


def get_rank() -> int:
    """Return the rank of this process; 0 without a process group."""
    import torch.distributed as dist

    return dist.get_rank() if is_dist_avail_and_initialized() else 0


def is_main_process() -> bool:
    """Return whether this is rank 0."""
    return get_rank() == 0


def is_gaudi() -> bool:
    """Return whether the devices are first-generation Gaudi, without opening one."""
    return hpu_core.device_name() == "GAUDI"


def is_gaudi2() -> bool:
    """Return whether the devices are Gaudi 2, without opening one."""
    return hpu_core.device_name() == "GAUDI2"


def get_device_string() -> str:
    """Return the Gaudi generation in lower case, such as "gaudi2", without opening a device.

    Raises:
        ValueError: There is no device, or its generation is unknown.
    """
    generation = hpu_core.device_name()
    if generation is None:
        raise ValueError("found no Gaudi card of a known generation: run `hpu-info` to see which sources were checked")
    return generation.lower()
