"""Reductions of the archived package, implemented by `hpu_core.collectives`."""

from typing import TYPE_CHECKING, Any

from hpu_core.lazy_exports import lazy_attributes

if TYPE_CHECKING:
    from torch import Tensor


def _operations() -> dict[str, Any]:
    """Return the reduce operations that HCCL supports, by name."""
    from torch.distributed import ReduceOp

    return {"sum": ReduceOp.SUM, "min": ReduceOp.MIN, "max": ReduceOp.MAX}


def _distributed_available() -> bool:
    """Return whether there is a process group with backend "hccl"."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and "hccl" in dist.get_backend()


def _is_reduce_op_supported(reduce_op: Any) -> bool:
    """Return True for "sum", "min", "max", "mean" and "avg", or the ReduceOp of that name.

    Raises:
        TypeError: `reduce_op` is not supported.
    """
    from torch.distributed import ReduceOp

    operations = {**_operations(), "mean": ReduceOp.AVG, "avg": ReduceOp.AVG}
    known = operations if isinstance(reduce_op, str) else list(operations.values())
    if (reduce_op.lower() if isinstance(reduce_op, str) else reduce_op) not in known:
        names = ", ".join(map(repr, operations))
        raise TypeError(f"`reduce_op` must be one of {names}, or the ReduceOp of that name, got {reduce_op!r}")
    return True


def _sync_hpu_processes_if_available(result: "Tensor", group: Any = None, reduce_op: Any = "sum") -> "Tensor":
    """Reduce a tensor over all ranks of a group in place, and return it, if there is a process group of "hccl".

    Raises:
        TypeError: `reduce_op` is not supported, see `_is_reduce_op_supported`.
    """
    if not _distributed_available():
        return result
    _is_reduce_op_supported(reduce_op)
    return _sync_hpu(result, group, reduce_op)


def _sync_hpu(result: "Tensor", group: Any = None, reduce_op: Any = "sum") -> "Tensor":
    """Reduce a tensor over all ranks in place, with a process group.

    Integers are reduced exactly. In the archived package, their mean was a float.
    """
    from hpu_core import collectives

    return collectives.all_reduce(result, group, reduce_op)


# Names up to 1.6.
_sync_ddp_if_available = _sync_hpu_processes_if_available
_sync_ddp_hpu = _sync_hpu

__getattr__, __dir__ = lazy_attributes(__name__, {"supported_reduce_ops": _operations})
