"""Reductions of the archived package, implemented by `hpu_core.collectives`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def _distributed_available() -> bool:
    """Return whether there is a process group with backend "hccl"."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and "hccl" in dist.get_backend()


def _sync_hpu_processes_if_available(result: "Tensor", group: Any = None, reduce_op: Any = "sum") -> "Tensor":
    """Reduce a tensor over all ranks of a group in place, and return it, if there is a process group of "hccl".

    Integers are reduced exactly. In the archived package, their mean was a float.

    Raises:
        ValueError: `reduce_op` is not supported.
    """
    from hpu_core import collectives

    return collectives.all_reduce(result, group, reduce_op) if _distributed_available() else result


# Name up to 1.6.
_sync_ddp_if_available = _sync_hpu_processes_if_available
