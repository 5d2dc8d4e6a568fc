"""Asynchronous file I/O for offloading to NVMe, used where DeepSpeed has no operator of its own.

DeepSpeed implements its asynchronous I/O as a C++ operator that needs libaio and a compiler. Up to 0.19 it has none for
Gaudi. The operator only moves data between host memory and files, so `AioHandle` does the same with `preadv` and
`pwritev` on a thread pool.
"""

import errno
import functools
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import torch

from hpu_deepspeed import _config, _deepspeed, _swap_dirs

_BUILDER: Final = "AsyncIOBuilder"
# The DeepSpeed modules that offload to NVMe, from 0.9.4 to 0.19. Each imports the operator's builder by name.
_SWAPPER_MODULES: Final = tuple(
    f"deepspeed.runtime.swap_tensor.{name}"
    for name in ("partitioned_param_swapper", "partitioned_optimizer_swapper", "pipelined_optimizer_swapper")
)

# The module that instantiates the parameter swapper.
_PARAM_MODULE: Final = "deepspeed.runtime.zero.partition_parameters"
_PARAM_SWAPPER: Final = "AsyncPartitionedParameterSwapper"
_Transfer = Callable[[int, Sequence[memoryview], int], int]


class AioHandle:
    """Replacement for DeepSpeed's `aio_handle`, with the methods that offloading calls.

    Args:
        block_size: Bytes per read or write; positive.
        queue_depth: Maximum number of blocks in flight; positive.
        keepalive: Object to keep alive as long as this handle; otherwise unused.

    DeepSpeed's further options are ignored: `single_submit` and `overlap_events` configure libaio's queue, and the
    blocks of a tensor are always transferred in parallel, whatever `intra_op_parallelism` is.
    """

    def __init__(
        self, block_size: int = 1 << 20, queue_depth: int = 8, *_: object, keepalive: object = None, **__: object
    ) -> None:
        self._keepalive = keepalive
        self._block_size = block_size
        self._executor = ThreadPoolExecutor(queue_depth, "hpu-deepspeed-nvme")
        # One list of blocks per tensor, because `wait` returns a number of tensors.
        self._pending: list[list[Future[None]]] = []

    def async_pread(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        """Start reading a file, from an offset in bytes, into a contiguous tensor in host memory.

        The tensor is undefined until `wait` returns, which raises the errors. Returns 0, as DeepSpeed's handle does.
        """
        return self._submit(os.preadv, os.O_RDONLY, buffer, filename, file_offset)

    def async_pwrite(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        """Start writing a contiguous tensor in host memory to a file, which is created if missing, as `async_pread`."""
        return self._submit(os.pwritev, os.O_WRONLY | os.O_CREAT, buffer, filename, file_offset)

    def wait(self) -> int:
        """Wait for all pending reads and writes, and return the number of their tensors.

        Raises:
            OSError: A file cannot be read or written, or is too short; the error names the file.
        """
        pending, self._pending = self._pending, []
        # Waits for every block before raising, because none may be in flight afterwards.
        errors = [block.exception() for blocks in pending for block in blocks]
        for error in filter(None, errors):
            raise error
        return len(pending)

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """Return a one-dimensional tensor in pinned host memory, with the dtype of an example."""
        pinned: torch.Tensor = _accelerator().pin_memory(torch.empty(num_elem, dtype=example_tensor.dtype))
        return pinned

    def free_cpu_locked_tensor(self, locked_tensor: torch.Tensor) -> bool:  # noqa: ARG002 - DeepSpeed's interface.
        """Do nothing; torch frees pinned memory with the last tensor that uses it."""
        return True

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Return whether a tensor is in pinned memory."""
        return bool(_accelerator().is_pinned(buffer))

    def _submit(self, transfer: _Transfer, flags: int, buffer: torch.Tensor, filename: str, file_offset: int) -> int:
        # As bytes, because numpy has no bfloat16. It keeps the memory allocated, even if the caller drops the tensor.
        memory = buffer.detach().flatten().view(torch.uint8).numpy().data
        starts = range(0, len(memory), self._block_size)
        blocks = ((memory[start : start + self._block_size], file_offset + start) for start in starts)
        submit = self._executor.submit
        self._pending.append([submit(_transfer_block, transfer, flags, filename, *block) for block in blocks])
        return 0


def _transfer_block(transfer: _Transfer, flags: int, filename: str, memory: memoryview, offset: int) -> None:
    """Read or write one block of a file.

    Raises:
        OSError: The file cannot be opened, read or written, or ends before the block does.
    """
    descriptor = os.open(filename, flags, 0o600)
    try:
        # One call may transfer a part.
        while memory:
            count = transfer(descriptor, [memory], offset)
            if count == 0:
                raise OSError(errno.EIO, f"unexpected end of file at offset {offset}, {len(memory)} bytes missing")  # noqa: TRY301 - see below.
            memory, offset = memory[count:], offset + count
    except OSError as error:
        # `preadv` and `pwritev` only have the descriptor.
        error.filename = filename
        raise
    finally:
        os.close(descriptor)


def aio_builder(keepalive: object) -> SimpleNamespace:
    """Return a replacement for the builder of DeepSpeed's operator, whose `load` compiles nothing."""
    operator = SimpleNamespace(aio_handle=functools.partial(AioHandle, keepalive=keepalive))
    return SimpleNamespace(load=lambda verbose=False: operator)  # noqa: ARG005 - DeepSpeed's interface.


def validate(config: dict[str, Any]) -> None:
    """Raise if the NVMe offload that a configuration asks for is impossible.

    Raises:
        NotImplementedError: DeepSpeed has no async I/O operator for Gaudi and cannot use `AioHandle` either.
    """
    if not _config.offloads(config, "nvme") or _deepspeed.has_op(_BUILDER):
        return
    # Without `purge_state`, DeepSpeed before 0.18 cannot offload the state of torch's optimizers.
    swappers = _swapper_modules()
    can_swap_states = hasattr(getattr(swappers[1], "OptimizerSwapper", None), "purge_state")
    if not can_swap_states or not all(hasattr(module, _BUILDER) for module in swappers):
        raise NotImplementedError(
            f"DeepSpeed {_deepspeed.version()} cannot offload to NVMe on Gaudi: it has no asynchronous I/O operator "
            "for Gaudi, and hpu-deepspeed's replacement works with DeepSpeed 0.18 and 0.19 only: offload to 'cpu', or "
            "install one of these"
        )


def prepare(config: dict[str, Any]) -> list[_swap_dirs.SwapDir]:
    """Create this process's swap directories, and patch DeepSpeed to use `AioHandle` if it has no operator.

    `nvme_path` in the configuration is replaced by the directories.

    DeepSpeed's modules import the builder by name and take none as an argument, so the name is replaced in these
    modules. DeepSpeed's registry of operators stays unchanged.

    Returns:
        The directories, if DeepSpeed's own operator uses them, for the caller to keep; each `AioHandle` keeps its own.

    Raises:
        OSError: A directory cannot be created.
    """
    offloads = _config.offloads(config, "nvme")
    directories = _swap_dirs.create(offloads.values())
    if offloads and not _deepspeed.has_op(_BUILDER):
        for module in _swapper_modules():
            setattr(module, _BUILDER, functools.partial(aio_builder, directories))
        directories = []
    if "offload_param" in offloads:
        # By default DeepSpeed keeps the buffers of weights that are reused soon, until none is left and it raises.
        config["zero_optimization"].setdefault("stage3_max_reuse_distance", 0)
        _patch_param_swapper()
    return directories


class _DedupSwapIn:
    """Mixin for DeepSpeed's parameter swapper that reads each weight once.

    The prefetch list of a small model can contain a weight twice, for the forward and for the backward pass. DeepSpeed
    0.19 then fails an assertion.
    """

    def swap_in(self, params: list[Any], *args: Any, **kwargs: Any) -> None:
        """Read weights without duplicates."""
        super().swap_in(list(dict.fromkeys(params)), *args, **kwargs)  # type: ignore[misc] # Defined by the swapper.


def _patch_param_swapper() -> None:
    module = importlib.import_module(_PARAM_MODULE)
    swapper = getattr(module, _PARAM_SWAPPER)
    if not issubclass(swapper, _DedupSwapIn):
        setattr(module, _PARAM_SWAPPER, type(_PARAM_SWAPPER, (_DedupSwapIn, swapper), {}))


def _swapper_modules() -> list[Any]:
    return [importlib.import_module(name) for name in _SWAPPER_MODULES]


def _accelerator() -> Any:
    return _deepspeed.load().accelerator.get_accelerator()
