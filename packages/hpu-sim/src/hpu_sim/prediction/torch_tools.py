"""Private names of torch that the planner uses, in one place; torch 2.8 and newer have them in this form."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

#: First release of torch whose tools the planner was written for.
MINIMUM_TORCH: Final = (2, 8)

#: Name of the process group backend of a plan.
PLANNED: Final = "hpu_sim_plan"
#: Function of torch by which its distributions check their arguments.
IS_ALL_TRUE: Final = "_is_all_true"
_SECONDS_OF_STORE: Final = 10
# Value of SUM in torch's C++ enumeration of reductions.
_SUM: Final = 0


def is_supported() -> bool:
    """Return whether torch is at least :data:`MINIMUM_TORCH`."""
    import torch

    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    return version >= MINIMUM_TORCH


def tensors_in(value: object) -> list[torch.Tensor]:
    """Return the tensors in nested containers."""
    import torch
    from torch.utils._pytree import tree_flatten

    # torch 2.0 has no `tree_leaves`.
    return [each for each in tree_flatten(value)[0] if isinstance(each, torch.Tensor)]


def storage_key(tensor: torch.Tensor) -> int:
    """Return a number of a tensor's storage, which no other one has while it is alive."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return int(StorageWeakRef(tensor.untyped_storage()).cdata)


def is_safe_softmax(overload: Any) -> bool:
    """Return whether an operator is the softmax of attention."""
    import torch

    return overload is torch.ops.aten._safe_softmax.default  # noqa: SLF001 - attention's own


def safe_softmax(scores: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the softmax of attention by the operators of which torch makes it where a device has none."""
    import torch

    values = torch.ops.aten._softmax.default(scores.to(dtype or scores.dtype), dim, False)  # noqa: SLF001 - as above
    hidden = torch.isneginf(scores).all(dim, keepdim=True)
    return torch.where(hidden, torch.zeros((), dtype=values.dtype, device=values.device), values)


def init_process_group(make: Callable[[int, int], Any], initialize: Callable[..., None], rank: int, size: int) -> None:
    """Make the default process group of a rank by torch's function, with a backend that another function makes."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import HashStore

    if PLANNED not in dist.Backend.backend_list:
        dist.Backend.register_backend(
            PLANNED,
            lambda options, *_: make(options.group_rank, options.group_size),
            extended_api=True,
            devices=["cpu", "hpu"],
        )
    store = HashStore()
    # No other rank comes to set what a program waits for.
    store.set_timeout(dt.timedelta(seconds=_SECONDS_OF_STORE))
    initialize(PLANNED, rank=rank, world_size=size, store=store)


def has_data(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has data in a plan: it is on the host, and not reserved."""
    import torch

    return not torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.HPU)  # noqa: SLF001 - the only list of them


def group_ranks(group: Any) -> tuple[int, ...]:
    """Return the ranks of a process group: an object, a boxed one of an operator's arguments, or a name."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group

    if isinstance(group, str):
        group = _resolve_process_group(group)  # type: ignore[arg-type] # a GroupName, which is a str
    elif not isinstance(group, ProcessGroup):
        group = ProcessGroup.unbox(group)
    return tuple(dist.get_process_group_ranks(group))


def is_sum(operation: Any) -> bool:
    """Return whether a boxed reduction of a collective's arguments is a sum."""
    return bool(operation.op() == _SUM)


def loader_iterator_class() -> type[Any]:
    """Return the base class of the iterators of DataLoaders."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return _BaseDataLoaderIter


def node_number() -> int | None:
    """Return the number that the autograd node which runs in this thread got when the forward pass made it."""
    import torch

    # None outside of a backward pass, which torch's annotations leave out.
    node: Any = torch._C._current_autograd_node()  # noqa: SLF001 - no public name tells it
    return None if node is None else int(node._sequence_nr())  # noqa: SLF001 - as above


def next_node_number() -> int:
    """Return the number of the next autograd node that this thread makes."""
    import torch

    autograd: Any = torch.autograd
    return int(autograd._get_sequence_nr())  # noqa: SLF001 - no public name tells it


def is_backward() -> bool:
    """Return whether the autograd engine runs a backward pass in this thread."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - torch's own trackers use it
