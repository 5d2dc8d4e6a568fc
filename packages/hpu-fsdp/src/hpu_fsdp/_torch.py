"""Private names of torch that hpu-fsdp uses, and functions that depend on torch's version."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.nn import Module

__all__ = ["drop_cleared_gradients", "ignore_no_shard_warning"]

# Strategies that keep parameters unsharded between forward and backward.
_UNSHARDED_AFTER_FORWARD = frozenset({"SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"})


def drop_cleared_gradients(module: Module) -> None:
    """Drop the sharded gradients whose parameters' gradients are None, before a backward pass.

    Lightning clears gradients between forward and backward. Without this, torch 2.0 to 2.13 accumulate the previous
    step's gradients of the last wrapped module with `SHARD_GRAD_OP`, because its hook runs before the root's, which
    drops them.

    Args:
        module: Module with FullyShardedDataParallel modules.
    """
    for part in FullyShardedDataParallel.fsdp_modules(module):
        handle: Any = part._handle  # noqa: SLF001 - torch has no public name for it.
        if handle is not None and part.sharding_strategy.name in _UNSHARDED_AFTER_FORWARD:
            handle._reset_flat_param_grad_info_if_needed()  # noqa: SLF001 - as above.


@contextmanager
def ignore_no_shard_warning(strategy: ShardingStrategy) -> Iterator[None]:
    """Return a context that ignores torch's advice to use DistributedDataParallel instead of `NO_SHARD`.

    Args:
        strategy: The sharding strategy. With another one than `NO_SHARD`, the context does nothing.
    """
    if strategy is not ShardingStrategy.NO_SHARD:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The `NO_SHARD` sharding strategy is deprecated")
        yield
