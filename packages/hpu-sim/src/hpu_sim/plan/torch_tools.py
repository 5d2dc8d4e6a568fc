"""Private names of torch that the planner uses, in one place: fake tensors, the fake process group and memory tracking.

They are in ``torch.distributed._tools`` and ``torch._subclasses``, which torch 2.8 and newer have in this form.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.plan.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import torch

#: First release of torch whose tools the planner was written for.
MINIMUM_TORCH: Final = (2, 8)

# Value of SUM in torch's C++ enumeration of reductions.
_SUM: Final = 0


def require_torch() -> None:
    """Raise an error if torch is too old.

    Raises:
        PlanError: If torch is older than :data:`MINIMUM_TORCH`.
    """
    import torch

    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < MINIMUM_TORCH:
        minimum = ".".join(map(str, MINIMUM_TORCH))
        raise PlanError(
            f"`hpu-sim plan` needs torch {minimum} or newer, for its tools for memory, got {torch.__version__}; plan "
            "in an environment with a newer torch"
        )


def fake_tensor_module() -> ModuleType:
    """Return torch's module of fake tensors: ``FakeTensor``, ``FakeTensorMode`` and their exceptions."""
    import torch._subclasses.fake_tensor as module

    return module


def clear_fake_memo(fake_mode: Any) -> None:
    """Drop the fake mode's weak references to tensors, which keep ``torch.utils.swap_tensors`` from swapping them."""
    converter = fake_mode.fake_tensor_converter.meta_converter
    converter.tensor_memo.clear()
    converter.describer.lookup_tensor.clear()


def init_fake_process_group(rank: int, world_size: int) -> None:
    """Make a default process group whose collectives do nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())


@functools.cache
def _work_class() -> type[Any]:
    import torch
    from torch._C._distributed_c10d import Work

    class FinishedWork(Work):
        """Finished work of a collective, whose future has its tensors: DDP's reducer asks for them."""

        def __init__(self, tensors: Any) -> None:
            super().__init__()
            self.tensors = tensors

        def wait(self, timeout: Any = None) -> bool:
            del timeout
            return True

        def get_future(self) -> torch.futures.Future[Any]:
            future: torch.futures.Future[Any] = torch.futures.Future()
            future.set_result(self.tensors)
            return future

    return FinishedWork


class Chunks:
    """Chunks of a tensor as FSDP2 makes them, each made when it is asked for.

    FSDP2 makes one per rank and takes that of its own. On 512 ranks the others are most of the time of a plan.

    Args:
        tensor: Tensor to divide.
        count: Number of chunks; the last ones may be empty.
        dim: Dimension to divide.
    """

    def __init__(self, tensor: torch.Tensor, count: int, dim: int) -> None:
        self._tensor = tensor
        self._count = count
        self._dim = dim

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        length = self._tensor.size(self._dim)
        size = -(-length // self._count)
        start = index * size
        if start >= length:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(size, length - start))


def fsdp_parameter_module() -> ModuleType | None:
    """Return FSDP2's module of parameters, whose ``_chunk_with_empty`` :class:`Chunks` replaces; None without it."""
    try:
        from torch.distributed.fsdp._fully_shard import _fsdp_param
    except ImportError:
        return None
    return _fsdp_param if hasattr(_fsdp_param, "_chunk_with_empty") else None


def finished_work(tensors: Any) -> Any:
    """Return a finished work; its method ``boxed`` returns it as an operator of ``torch.ops.c10d`` does.

    Args:
        tensors: Result of the collective.
    """
    return _work_class()(tensors)


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


def flop_formulas() -> dict[Any, Callable[..., int]]:
    """Return torch's formulas for floating-point operations, by operator."""
    from torch.utils.flop_counter import flop_registry

    return dict(flop_registry)


def is_backward() -> bool:
    """Return whether the autograd engine runs a backward pass in this thread."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - torch's own trackers use it


def mem_tracker_names() -> tuple[Any, Any, Any]:
    """Return torch's memory tracker, its categories and its kinds of updates."""
    from torch.distributed._tools import mem_tracker

    return mem_tracker.MemTracker, mem_tracker._MemRefType, mem_tracker._UpdateType  # noqa: SLF001 - see above
