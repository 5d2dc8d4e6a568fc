"""Setup of modules that the program shards with `fully_shard` and `parallelize_module`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn import Module

from hpu_fsdp import _setup, _torch


@contextmanager
def mesh_setup(strategy: Any) -> Iterator[None]:
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


def finish_sharding(strategy: Any, module: Module) -> None:
    """Restrict reductions to sums, and check that parameters are sharded.

    Raises:
        ValueError: No parameter is sharded, or a reduction needs another operation.
    """
    # An evaluation before leaves parameters gathered with `reshard_after_forward=False`.
    _torch.reshard(module)
    if strategy.world_size > 1 and not _torch.has_sharded_parameters(module):
        raise ValueError(
            f"the module must have sharded parameters, got {type(module).__name__} without any: call `fully_shard` "
            "or `parallelize_module` with the strategy's device mesh, and check that the plan names its modules"
        )
    _torch.force_sum_reduction(module)
