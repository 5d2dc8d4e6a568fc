"""Checkpoints of engines that offload to NVMe.

DeepSpeed 0.19 copies swap files into the checkpoint under names that count the parameters of a process. It restores
neither the step nor the moments of Adam from them, and it silently misses the weights in a process that has trained
before.

The checkpoints written here are the same as without NVMe, so either can resume from the other.
"""

import functools
import os
from typing import Any

import torch

from hpu_deepspeed._nvme import AioHandle


def patch_engine(engine: Any) -> None:
    """Make an engine save and load offloaded state as if it were in memory.

    Args:
        engine: A DeepSpeed engine. Engines that do not train or do not offload to NVMe are left unchanged.
    """
    optimizer = engine.optimizer
    swaps = getattr(optimizer, "swap_optimizer", False)
    if swaps and not hasattr(optimizer.optimizer_swapper, "purge_state"):
        # A DeepSpeed before 0.18 gets here only if it has an async I/O operator for Gaudi, so it is another fork.
        return
    if swaps or getattr(optimizer, "params_in_nvme_and_cpu", False):
        # DeepSpeed calls this only where it copies swap files.
        engine.zero_nvme_offload_optimizer = lambda: False
        optimizer._rigid_state_dict = functools.partial(_state_dict, optimizer)  # noqa: SLF001 - `state_dict` calls it.
        optimizer._rigid_load_state_dict = functools.partial(_load_state_dict, optimizer)  # noqa: SLF001 - as above.


def _state_dict(optimizer: Any) -> dict[str, Any]:
    """Return the optimizer's state, with tensors on NVMe memory-mapped rather than read."""
    if optimizer.swap_optimizer:
        for info in optimizer.optimizer_swapper.swap_params_info.values():
            for tensor in info.tensors:
                # The mapping is replaced by real memory in the next step.
                tensor.compute_tensor.data = torch.from_file(
                    tensor.swap_path, shared=False, size=info.numel(), dtype=info.dtype()
                )
    state: dict[str, Any] = type(optimizer)._rigid_state_dict(optimizer)  # noqa: SLF001 - see `patch_engine`.
    return state


def _load_state_dict(optimizer: Any, state_dict: dict[str, Any], load_optimizer_states: bool = True) -> None:
    """Load the optimizer's state group by group; DeepSpeed's own method needs all weights in memory."""
    optimizer.loss_scaler = state_dict["loss_scaler"]
    optimizer.dynamic_loss_scale = state_dict["dynamic_loss_scale"]
    optimizer.overflow = state_dict["overflow"]
    if load_optimizer_states:
        optimizer._set_fp32_optimizer_param_groups()  # noqa: SLF001 - the same steps as in DeepSpeed's method.
        optimizer.optimizer.load_state_dict(state_dict["optimizer_state_dict"])
        optimizer._clear_fp32_optimizer_param_groups()  # noqa: SLF001 - as above.
    if optimizer.swap_optimizer:
        optimizer.optimizer_swapper.purge_state()
    optimizer._partition_all_parameters()  # noqa: SLF001 - as above.
    for group, saved in enumerate(state_dict["fp32_flat_groups"]):
        flat = optimizer.fp32_partitioned_groups_flat[group]
        swappable = optimizer._swappable_optimizer_subgroup(group)  # noqa: SLF001 - as above.
        if swappable:
            flat.data = saved.data
        else:
            flat.data.copy_(saved.data)
        optimizer._reassign_or_swap_out_partitioned_parameters(group)  # noqa: SLF001 - as above.
        if swappable:
            _swap_out(optimizer.optimizer_swapper, flat)


def _swap_out(swapper: Any, flat: torch.Tensor) -> None:
    """Write a group's weights and optimizer states to their swap files and free the memory."""
    info = swapper._get_param_swap_info(flat)  # noqa: SLF001 - includes the states that were just loaded.
    handle = AioHandle()
    for tensor in info.tensors:
        handle.async_pwrite(tensor.compute_tensor.data, tensor.swap_path)
    handle.wait()
    size = swapper._io_aligned_numel(info.numel()) * flat.element_size()  # noqa: SLF001 - the size DeepSpeed reads.
    for tensor in info.tensors:
        os.truncate(tensor.swap_path, size)
    info.release_memory()
