"""Setup of modules that the program shards with `fully_shard` and `parallelize_module`."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn import Module

from hpu_fsdp import _setup, _torch
from hpu_fsdp._lightning import rank_zero_warn


@contextmanager
def building_mesh(strategy: Any) -> Iterator[None]:
    """Return the context of Lightning's set-up, which builds the mesh.

    Raises:
        RuntimeError: The bridge is in lazy mode.
        ValueError: `context_parallel_size` does not divide the ranks.
    """
    _setup.check_mode(strategy)
    _torch.patch_dtensor_random()
    strategy.at_teardown.callback(_torch.restore)
    sizes = vars(strategy)
    if strategy.context_parallel_size > 1:
        # Lightning would give the ranks of a machine one sample, and a share of each layer.
        if sizes["_tensor_parallel_size"] == "auto":
            sizes["_tensor_parallel_size"] = 1
        if sizes["_data_parallel_size"] == "auto":
            sizes["_data_parallel_size"] = strategy.world_size // sizes["_tensor_parallel_size"]
    yield
    _setup.create_context_parallel(strategy, sizes["_data_parallel_size"], sizes["_tensor_parallel_size"])


def finish_parallelization(strategy: Any, module: Module) -> None:
    """Restrict reductions to sums, and check the sharded parameters.

    Raises:
        ValueError: No parameter is sharded, a mesh is not one of HPUs, or a reduction needs another operation.
    """
    # An evaluation before leaves parameters gathered with `reshard_after_forward=False`.
    _torch.reshard(module)
    meshes = {parameter.device_mesh.device_type for parameter in _torch.sharded_parameters(module)}
    if not meshes and strategy.world_size > 1:
        raise ValueError(
            f"the module must have sharded parameters, got {type(module).__name__} without any: call `fully_shard` "
            "or `parallelize_module` with the strategy's device mesh, and check that the plan names its modules"
        )
    if meshes - {"hpu"}:
        raise ValueError(
            f"device meshes must be of 'hpu', got {', '.join(map(repr, sorted(meshes)))}: pass the strategy's "
            "`device_mesh`"
        )
    _torch.force_sum_reduction(module)
    units = _torch.count_resharded_units(module)
    if units and strategy.world_size > 1:
        rank_zero_warn(
            f"`fully_shard(reshard_after_forward=True)` frees the gathered parameters of {units} modules in each "
            "forward pass, and each is a host-device synchronization in eager mode: pass "
            "`reshard_after_forward=False` if the parameters fit in memory"
        )
    module.register_load_state_dict_post_hook(_move_loaded_parameters)


def _move_loaded_parameters(module: Module, _: Any) -> None:
    """Move frozen parameters that `load_state_dict(assign=True)` has replaced by CPU tensors to the device.

    Raises:
        ValueError: A parameter with gradients is a CPU tensor. Moving it would detach it from the optimizer.
    """
    loaded = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.device.type == "cpu" and parameter in set(_torch.sharded_parameters(module))
    }
    trained = next((name for name, parameter in loaded.items() if parameter.requires_grad), None)
    if trained is not None:
        raise ValueError(
            f"parameter {trained!r} of a sharded module must be on 'hpu', got 'cpu' by `load_state_dict(assign=True)`: "
            "move the state dict to the device, or pass `assign=False`"
        )
    if loaded:
        module._apply(lambda tensor: tensor.to(_setup.DEVICE) if tensor.device.type == "cpu" else tensor)  # noqa: SLF001


@contextmanager
def plan_errors() -> Iterator[None]:
    """Return a context in which a plan that names no module raises a ValueError; torch 2.9 and newer warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Parallelize plan key")
        try:
            yield
        except UserWarning as warning:
            raise ValueError(f"a plan of `parallelize_module` must name a module: {warning}") from warning
