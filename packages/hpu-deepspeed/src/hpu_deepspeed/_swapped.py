"""Checkpoints of a training that is offloaded to NVMe.

DeepSpeed 0.19 copies the optimizer's files into the checkpoint by names that count the parameters of a process, and
loads neither the steps nor the moments of Adam from there; in a process that has trained before, it does not find the
weights either, and says nothing. Checkpoints are made here as without NVMe, so that they can be resumed with it or
without, tested and converted.
"""

import functools
import os
from typing import Any

import torch

from hpu_deepspeed._nvme import Handle


def install(engine: Any) -> None:
    """Have an engine save and load what is on NVMe as if it were in memory.

    Args:
        engine: DeepSpeed's, of any kind; only one that trains and has offloaded to NVMe is changed.
    """
    optimizer = engine.optimizer
    swaps = getattr(optimizer, "swap_optimizer", False)
    if swaps and not hasattr(optimizer.optimizer_swapper, "purge_state"):
        # A DeepSpeed before 0.18 that has an operator of its own for Gaudi: another fork.
        return
    if swaps or getattr(optimizer, "params_in_nvme_and_cpu", False):
        # Asked where DeepSpeed copies files, and nowhere else.
        engine.zero_nvme_offload_optimizer = lambda: False
        optimizer._rigid_state_dict = functools.partial(_state, optimizer)  # noqa: SLF001 - what `state_dict` calls.
        optimizer._rigid_load_state_dict = functools.partial(_load, optimizer)  # noqa: SLF001 - and `load_state_dict`.
        optimizer._restore_from_bit16_weights = _refuse  # noqa: SLF001 - what DeepSpeed calls with weights alone.


def _state(optimizer: Any) -> dict[str, Any]:
    """Return the state of DeepSpeed's optimizer, of which tensors on NVMe are mapped into memory, and not read."""
    if optimizer.swap_optimizer:
        for info in optimizer.optimizer_swapper.swap_params_info.values():
            for tensor in info.tensors:
                # Until the next step, which gives it memory of its own.
                tensor.compute_tensor.data = torch.from_file(
                    tensor.swap_path, shared=False, size=info.numel(), dtype=info.dtype()
                )
    state: dict[str, Any] = type(optimizer)._rigid_state_dict(optimizer)  # noqa: SLF001 - see `install`.
    return state


def _load(optimizer: Any, state: dict[str, Any], load_optimizer_states: bool = True) -> None:
    """Do what DeepSpeed's method does, which needs all weights in memory, group by group."""
    optimizer.loss_scaler = state["loss_scaler"]
    optimizer.dynamic_loss_scale = state["dynamic_loss_scale"]
    optimizer.overflow = state["overflow"]
    if load_optimizer_states:
        optimizer._set_fp32_optimizer_param_groups()  # noqa: SLF001 - as DeepSpeed does it; so are those below.
        optimizer.optimizer.load_state_dict(state["optimizer_state_dict"])
        optimizer._clear_fp32_optimizer_param_groups()  # noqa: SLF001 - see above.
    if optimizer.swap_optimizer:
        optimizer.optimizer_swapper.purge_state()
    optimizer._partition_all_parameters()  # noqa: SLF001 - see above.
    for group, saved in enumerate(state["fp32_flat_groups"]):
        flat = optimizer.fp32_partitioned_groups_flat[group]
        swapped = optimizer._swappable_optimizer_subgroup(group)  # noqa: SLF001 - see above.
        if swapped:
            flat.data = saved.data
        else:
            flat.data.copy_(saved.data)
        optimizer._reassign_or_swap_out_partitioned_parameters(group)  # noqa: SLF001 - see above.
        if swapped:
            _put_away(optimizer.optimizer_swapper, flat)


def _refuse() -> None:
    """Stand for a method of DeepSpeed's which needs all weights in memory, and would fail with an AttributeError."""
    # The weights lie in files, where that method does not look.
    raise NotImplementedError(
        "weights without the optimizer's state cannot be loaded into a training that is offloaded to NVMe: load the "
        "optimizer's, too, or load them without NVMe"
    )


def _put_away(swapper: Any, flat: torch.Tensor) -> None:
    """Write a group's weights and the optimizer's states for them to their files, and free the memory."""
    info = swapper._get_param_swap_info(flat)  # noqa: SLF001 - adds the states that were loaded.
    handle = Handle()
    for tensor in info.tensors:
        handle.async_pwrite(tensor.compute_tensor.data, tensor.swap_path)
    handle.wait()
    size = swapper._io_aligned_numel(info.numel()) * flat.element_size()  # noqa: SLF001 - DeepSpeed reads as much.
    for tensor in info.tensors:
        os.truncate(tensor.swap_path, size)
    info.release_memory()
