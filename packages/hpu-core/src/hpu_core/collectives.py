"""Collectives on the tensors of a card, with what HCCL leaves out: averages, and integers that come out exact.

The bridge reduces float32 and bfloat16. It converts anything else to float32 first, so that integers beyond 2**24 come
out wrong, refuses 16-bit integers, and has no average. Source: the bridge's sources at 1.19.0.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hpu_core import bridge

T = TypeVar("T")


class _ReduceOpError(ValueError, TypeError):
    """An unknown reduce operation. `lightning-habana` raised a TypeError."""


_NATIVE: Final = {
    "sum": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}
_OPERATIONS: Final = {**_NATIVE, "mean": dist.ReduceOp.AVG}
_SYNONYMS: Final = {"avg": "mean", "prod": "product"}

# How the ranks' integers, of shape (ranks, elements), are put together. Sums are of 64 bits, which what is kept of a
# narrower type is the same of: both count modulo a power of two.
_EXACT: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "sum": lambda parts: parts.sum(0),
    "mean": lambda parts: torch.div(parts.sum(0), len(parts), rounding_mode="trunc"),
    "min": lambda parts: parts.amin(0),
    "max": lambda parts: parts.amax(0),
    "product": lambda parts: parts.prod(0),
}


def all_reduce(tensor: Tensor, group: Any | None, reduce_op: Any) -> Tensor:
    """Put the tensors of all ranks together, in place.

    Floats are reduced by HCCL; a mean is their sum, divided. Integers and booleans are gathered, which moves bits, and
    put together on each card: exact, one collective, and it takes memory and traffic for the tensor once per rank. A
    mean of integers is cut off towards zero, as elsewhere in Lightning.

    Args:
        tensor: A tensor of any shape, which must be the same on all ranks. One on the CPU is copied to the device and
            its result back, which is a host-device synchronization.
        group: The process group; all ranks when None.
        reduce_op: "mean", "sum", "min", "max" or "product", or the ReduceOp of that name; None is a sum.

    Returns:
        `tensor`.

    Raises:
        ValueError: The tensor is on another device, or the operation is another one. The latter is a TypeError, too.
    """
    operation = _operation(reduce_op)
    if tensor.device.type == "cpu":
        return tensor.copy_(all_reduce(tensor.to("hpu"), group, operation))
    check_device(tensor)
    group = dist.group.WORLD if group is None else group
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return _reduce_exactly(tensor, group, operation)
    dist.all_reduce(tensor, op=_NATIVE.get(operation, dist.ReduceOp.SUM), group=group)
    return tensor.div_(dist.get_world_size(group)) if operation == "mean" else tensor


def all_gather(tensor: Tensor, group: Any | None) -> Tensor:
    """Return the tensors of all ranks, of shape `(ranks, *shape)`, without gradients.

    Args:
        tensor: On the card, of the same shape on all ranks.
        group: The process group; all ranks when None.

    Raises:
        ValueError: The tensor is not on a card.
    """
    check_device(tensor)
    group = dist.group.WORLD if group is None else group
    parts = tensor.new_empty((dist.get_world_size(group), *tensor.shape))
    dist.all_gather(list(parts), tensor.detach().contiguous(), group=group)
    return parts


def broadcast(value: T, source: int) -> T:
    """Return what rank `source` has, an object of any kind; it travels as an hpu tensor."""
    values = [value]
    dist.broadcast_object_list(values, source, group=dist.group.WORLD, device=torch.device("hpu"))
    return values[0]


def barrier() -> None:
    """Wait until all ranks are here and their cards have finished what they were given."""
    # HCCL's barrier is one of the hosts, which no card waits for: without this, a rank could pass while the card of
    # another one still works.
    bridge.synchronize()
    with warnings.catch_warnings():
        ignore_barrier_warning()
        dist.barrier()
    # Should a barrier be a collective of the cards, it has run now.
    bridge.synchronize()


def ignore_barrier_warning() -> None:
    """Filter torch's warning about a barrier of a process group without `device_id`, also for barriers of libraries.

    It advises to pass a device with an index, which an HPU does not have.
    """
    warnings.filterwarnings("ignore", message=r"barrier\(\): using the device under current context")


def check_device(tensor: Tensor) -> None:
    """Check that a tensor is where HCCL can take it from.

    Raises:
        ValueError: It is not on a card.
    """
    if tensor.device.type != "hpu":
        raise ValueError(
            f"`tensor` must be on 'hpu' for a collective over HCCL, got one on {str(tensor.device)!r}: move it with "
            "`.to('hpu')`"
        )


def _operation(reduce_op: Any) -> str:
    if reduce_op is None:
        return "sum"
    if isinstance(reduce_op, str):
        name = _SYNONYMS.get(reduce_op.lower(), reduce_op.lower())
        if name in _OPERATIONS:
            return name
    else:
        for name, operation in _OPERATIONS.items():
            if reduce_op == operation:
                return name
    raise _ReduceOpError(
        f"`reduce_op` must be {', '.join(map(repr, _OPERATIONS))} or the ReduceOp of that name, got {reduce_op!r}: "
        "HCCL has no other"
    )


def _reduce_exactly(tensor: Tensor, group: Any, operation: str) -> Tensor:
    own = tensor.detach().reshape(-1)
    if own.dtype is torch.int16:
        own = own.int()
    return tensor.copy_(_EXACT[operation](all_gather(own, group)).view_as(tensor))
