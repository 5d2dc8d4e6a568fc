"""Private names of torch that the planner uses, in one place: fake tensors, the fake process group and memory tracking.

They are in ``torch.distributed._tools`` and ``torch._subclasses``, which torch 2.8 and newer have in this form.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    import torch

#: First release of torch whose tools the planner was written for.
MINIMUM_TORCH: Final = (2, 8)

# Files whose frames are between an operator's caller and a dispatch mode.
_DISPATCH_FILES: Final = (
    *frames.DISPATCHERS,
    "torch/distributed/_tools/mem_tracker.py",
    "hpu_sim/plan/fake_device.py",
    "hpu_sim/plan/memory_tracker.py",
)
# Libraries that compare addresses of tensors, which are all 0 in a plan, to find shared memory.
_READS_ADDRESSES: Final = r"(torch|lightning|pytorch_lightning|lightning_fabric|transformers|accelerate|peft)(\.|$)"
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


def fake_tensor_module() -> ModuleType:
    """Return torch's module of fake tensors: ``FakeTensor``, ``FakeTensorMode`` and their exceptions."""
    import torch._subclasses.fake_tensor as module

    return module


def clear_fake_memo(fake_mode: Any) -> None:
    """Drop the fake mode's weak references to tensors, which keep ``torch.utils.swap_tensors`` from swapping them."""
    converter = fake_mode.fake_tensor_converter.meta_converter
    converter.tensor_memo.clear()
    converter.describer.lookup_tensor.clear()


def init_fake_process_group(rank: int, world_size: int, initialize: Callable[..., None] | None = None) -> None:
    """Make a default process group whose collectives do nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    (initialize or dist.init_process_group)("fake", rank=rank, world_size=world_size, store=FakeStore())


@functools.cache
def finished_work_class() -> type[Any]:
    """Return the class of finished works, whose ``boxed`` returns one as an operator of ``torch.ops.c10d`` does."""
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


def fsdp_replacements() -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield functions of FSDP2 and FSDP1 that this module replaces: their module, their name and the replacement."""
    for module, name, value in (
        ("torch.distributed.fsdp._fully_shard._fsdp_param", "_chunk_with_empty", Chunks),
        ("torch.distributed.fsdp._flat_param", "_same_storage", same_storage),
    ):
        with contextlib.suppress(ImportError):
            found = importlib.import_module(module)
            if hasattr(found, name):
                yield found, name, value


def same_storage(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors have the same storage; FSDP1 compares addresses, which fake tensors do not have."""
    storages = [getattr(each, "_local_tensor", each).untyped_storage() for each in (first, second)]
    return bool(storages[0]._cdata == storages[1]._cdata)  # noqa: SLF001 - the only identity of a storage


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


def is_innermost_mode(mode: Any) -> bool:
    """Return whether a dispatch mode is the last one that was entered."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return _get_current_dispatch_mode() is mode


def is_last_reference(tensor: torch.Tensor) -> bool:
    """Return whether nothing but this tensor holds its storage."""
    import torch

    storage = tensor.untyped_storage()
    # The tensor, and the Python object of its storage.
    return bool(torch._C._storage_Use_Count(storage._cdata) <= 2)  # noqa: SLF001, PLR2004 - as above


def is_called_by_autograd_engine() -> bool:
    """Return whether the autograd engine called the operator, and not a function in Python or one of its nodes."""
    frame = _calling_frame()
    return frame is None or frame.f_code.co_name == "_engine_run_backward"


def is_called_by_ddp() -> bool:
    """Return whether DistributedDataParallel called the operator: its reducer in C++ has no frames of its own."""
    frame = _calling_frame()
    return frame is not None and frame.f_code.co_filename.endswith("torch/nn/parallel/distributed.py")


def _calling_frame() -> Any:
    """Return the frame that called the operator which a dispatch mode handles; None if code in C++ did."""
    frame: Any = sys._getframe(3)  # noqa: SLF001 - `inspect` is too slow for every operator
    while frame is not None and frame.f_code.co_filename.endswith(_DISPATCH_FILES):
        frame = frame.f_back
    return frame


@contextlib.contextmanager
def warnings_filtered() -> Iterator[None]:
    """Ignore warnings of torch's own code about fake tensors, and raise that about their missing addresses elsewhere.

    Code in C++ that reads from such an address would crash. torch by itself warns of a process's first access alone.
    """
    import torch

    address = "Accessing the data pointer of FakeTensor"
    warns_always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", address)
        warnings.filterwarnings("ignore", address, module=_READS_ADDRESSES)
        # A module that calls itself, as Lightning's do within DistributedDataParallel. torch also changes how warnings
        # are shown then.
        warnings.filterwarnings("ignore", "The module hierarchy tracking")
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        formats = warnings.formatwarning
        try:
            yield
        finally:
            warnings.formatwarning = formats
            torch.set_warn_always(warns_always)


def loader_iterator_class() -> type[Any]:
    """Return the base class of the iterators of DataLoaders."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return _BaseDataLoaderIter


def batch_fetcher(iterator: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes a DataLoader's batch of indices; None if its dataset is a stream.

    It runs without the dispatch modes of a plan, which would take most of the time.
    """
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils.data.dataloader import _DatasetKind

    if iterator._dataset_kind != _DatasetKind.Map:  # noqa: SLF001 - no public name tells it
        return None
    fetcher: Any = _DatasetKind.create_fetcher(
        iterator._dataset_kind,  # noqa: SLF001 - as above
        iterator._dataset,  # noqa: SLF001 - as above
        iterator._auto_collation,  # noqa: SLF001 - as above
        iterator._collate_fn,  # noqa: SLF001 - as above
        drop_last=False,
    )

    def fetch(indices: Any) -> Any:
        with _disable_current_modes():
            return fetcher.fetch(indices)

    return fetch


def flop_formulas() -> dict[Any, Callable[..., int]]:
    """Return torch's formulas for floating-point operations, by operator."""
    from torch.utils.flop_counter import flop_registry

    return dict(flop_registry)


def is_backward() -> bool:
    """Return whether the autograd engine runs a backward pass in this thread."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - torch's own trackers use it


@functools.cache
def module_tracker_class() -> type[Any]:
    """Return torch's ``ModTracker`` for any program."""
    import torch
    from torch.distributed._tools.mod_tracker import ModTracker

    class ModuleTracker(ModTracker):
        """torch's tracker, which supports a backward pass within a module's forward: manual optimization.

        A module that wraps one with a name, as DistributedDataParallel does, has no name of its own.
        """

        def _get_mod_name(self, mod: torch.nn.Module) -> str:
            known, seen = self._known_modules, self._seen_modules
            named = {} if mod in seen else {child: known[child] for child in mod.children() if child in seen}
            name = super()._get_mod_name(mod)  # type: ignore[no-untyped-call] # torch's
            if named and mod not in named:
                known.update(named)
                name = known[mod] = ""
            return str(name)

        def _maybe_set_engine_callback(self) -> None:
            if not self._has_callback:
                before = set(self.parents)
                super()._maybe_set_engine_callback()  # type: ignore[no-untyped-call] # torch's
                restore = functools.partial(setattr, self, "parents", before)
                # After torch's own callback, which forgets the modules whose forward still runs.
                torch.autograd.Variable._execution_engine.queue_callback(restore)  # noqa: SLF001 - as torch's tracker

        def _get_pop_fn(self, w_mod: Any, name: str, is_bw: bool) -> Callable[..., None]:
            pop = super()._get_pop_fn(w_mod, name, is_bw)  # type: ignore[no-untyped-call] # torch's

            def pop_if_known(*args: Any) -> None:
                if name in self.parents or is_bw:
                    pop(*args)

            return pop_if_known

    return ModuleTracker


def mem_tracker_names() -> tuple[Any, Any, Any]:
    """Return torch's memory tracker, its categories and its kinds of updates."""
    from torch.distributed._tools import mem_tracker

    return mem_tracker.MemTracker, mem_tracker._MemRefType, mem_tracker._UpdateType  # noqa: SLF001 - see above
