"""Reading and writing the files that DeepSpeed offloads to NVMe, where DeepSpeed has no operator of its own for it.

DeepSpeed's asynchronous I/O is an operator in C++, for which it needs libaio and a compiler; for Gaudi it has none, up
to DeepSpeed 0.19. Nothing in it depends on the card: tensors go from the card to the host's memory before, and what is
left is to bring memory to a file and back while the training goes on. That is what `Handle` does, with the operating
system's `preadv` and `pwritev` on threads, wherever Python runs.
"""

import ctypes
import errno
import functools
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch

from hpu_deepspeed import _config, _swap_folders, _vendor

_BUILDER: Final = "AsyncIOBuilder"
# The modules of DeepSpeed that offload to NVMe, from 0.9.4 to 0.19; each has imported the operator's builder.
_SWAPPERS: Final = tuple(
    f"deepspeed.runtime.swap_tensor.{name}"
    for name in ("partitioned_param_swapper", "partitioned_optimizer_swapper", "pipelined_optimizer_swapper")
)

# The module that makes the first of these.
_PARAMETERS: Final = "deepspeed.runtime.zero.partition_parameters"
_PARAMETER_SWAPPER: Final = "AsyncPartitionedParameterSwapper"

_READ: Final = os.O_RDONLY
_WRITE: Final = os.O_WRONLY | os.O_CREAT

_Transfer = Callable[[int, Sequence[memoryview], int], int]


class Handle:
    """Stands for `aio_handle` of DeepSpeed's operator, with as much of it as offloading uses.

    Args:
        block_size: How many bytes are read or written at once; positive.
        queue_depth: How many of those blocks may be on their way at the same time; positive.
        single_submit: Of no account here, as are the others: they are about libaio's queue. Older DeepSpeeds pass all
            of them by position.
        overlap_events: The same.
        intra_op_parallelism: The same: the blocks of a tensor are always moved side by side.
        keeps: What is to live as long as this object; nothing is done with it.
    """

    def __init__(  # noqa: PLR0913 - DeepSpeed's interface, which passes the first five by position, too.
        self,
        block_size: int = 1 << 20,
        queue_depth: int = 8,
        single_submit: bool = False,  # noqa: ARG002 - DeepSpeed's interface, as the next two.
        overlap_events: bool = True,  # noqa: ARG002 - see above.
        intra_op_parallelism: int = 1,  # noqa: ARG002 - see above.
        *,
        keeps: object = None,
    ) -> None:
        self._keeps = keeps
        self._block_size = block_size
        self._threads = ThreadPoolExecutor(queue_depth, "hpu-deepspeed-nvme")
        # The blocks of each tensor, because DeepSpeed counts tensors.
        self._begun: list[list[Future[None]]] = []

    def async_pread(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        """Begin to read a tensor from a file.

        Args:
            buffer: Contiguous, in the host's memory; it must not be used before `wait`.
            filename: The file.
            file_offset: Where in the file it begins, in bytes.

        Returns:
            0, as DeepSpeed's. Errors are raised by `wait`.
        """
        return self._begin(os.preadv, _READ, buffer, filename, file_offset)

    def async_pwrite(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        """Begin to write a tensor to a file, which is made if it is not there.

        Args:
            buffer: Contiguous, in the host's memory; it must not be changed before `wait`.
            filename: The file.
            file_offset: Where in the file it begins, in bytes.

        Returns:
            0, as DeepSpeed's. Errors are raised by `wait`.
        """
        return self._begin(os.pwritev, _WRITE, buffer, filename, file_offset)

    def wait(self) -> int:
        """Wait until all that was begun is done.

        Returns:
            How many tensors that was.

        Raises:
            OSError: A file could not be read or written, or ends too early; the error names it.
        """
        begun, self._begun = self._begun, []
        # All of them before the first error is raised, so that none is on its way any more.
        errors = [block.exception() for blocks in begun for block in blocks]
        for error in errors:
            if error is not None:
                raise error
        return len(begun)

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in pinned memory of the host, which a card reads and writes by itself.

        Args:
            num_elem: Its number of elements.
            example_tensor: One of its type.
        """
        pinned: torch.Tensor = _accelerator().pin_memory(torch.empty(num_elem, dtype=example_tensor.dtype))
        return pinned

    def free_cpu_locked_tensor(self, locked_tensor: torch.Tensor) -> bool:  # noqa: ARG002 - DeepSpeed's interface.
        """Do nothing: torch frees pinned memory with the last tensor in it."""
        return True

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Tell whether a tensor lies in pinned memory."""
        return bool(_accelerator().is_pinned(buffer))

    def _begin(self, transfer: _Transfer, flags: int, buffer: torch.Tensor, filename: str, file_offset: int) -> int:
        size = buffer.numel() * buffer.element_size()
        # numpy, through which tensors offer their memory, has no bfloat16.
        array = (ctypes.c_ubyte * size).from_address(buffer.data_ptr())
        # The memory must stay for as long as one of its blocks is on its way, whatever becomes of the tensor meanwhile.
        array.owner = buffer.detach()  # type: ignore[attr-defined] # Instances of ctypes take any attribute.
        memory = memoryview(array).cast("B")
        self._begun.append(
            [
                self._threads.submit(
                    _move, transfer, flags, memory[start : start + self._block_size], filename, file_offset + start
                )
                for start in range(0, size, self._block_size)
            ]
        )
        return 0


def _move(transfer: _Transfer, flags: int, memory: memoryview, filename: str, offset: int) -> None:
    """Read or write a block of a file.

    Raises:
        OSError: It cannot be opened, read or written, or ends before the block does.
    """
    descriptor = os.open(filename, flags, 0o600)
    try:
        _move_all(transfer, descriptor, memory, offset)
    except OSError as error:
        # Those of `preadv` and `pwritev` do not know which file it is.
        error.filename = filename
        raise
    finally:
        os.close(descriptor)


def _move_all(transfer: _Transfer, descriptor: int, memory: memoryview, offset: int) -> None:
    """Read or write a block in as many calls as the operating system makes of it."""
    while memory:
        moved = transfer(descriptor, [memory], offset)
        if moved == 0:
            raise OSError(errno.EIO, f"{len(memory)} bytes are missing from {offset} on, where the file ends")
        memory, offset = memory[moved:], offset + moved


class Builder:
    """Stands for the builder of DeepSpeed's operator: there is nothing to build.

    Args:
        keeps: What is to live as long as each handle.
    """

    def __init__(self, keeps: object) -> None:
        self._keeps = keeps

    def load(self, verbose: bool = False) -> SimpleNamespace:  # noqa: ARG002 - DeepSpeed's interface.
        """Return what stands for the operator's module."""
        return SimpleNamespace(aio_handle=functools.partial(Handle, keeps=self._keeps))


def check(config: dict[str, Any]) -> None:
    """Check that what is to be offloaded to NVMe can be: with DeepSpeed's own operator, or with `Handle`.

    Args:
        config: DeepSpeed's configuration.

    Raises:
        NotImplementedError: DeepSpeed has no operator for Gaudi, and none of the places where another one is put.
        OSError: The folder is not there, or cannot be written.
    """
    offloads = _config.offloads(config, "nvme")
    for options in offloads.values():
        _check_folder(options.get("nvme_path"))
    if not offloads or _vendor.has_op(_BUILDER):
        return
    # DeepSpeed before 0.18 has no `purge_state`, and cannot offload the state of torch's optimizers.
    swappers = _swappers()
    can_swap_states = hasattr(getattr(swappers[1], "OptimizerSwapper", None), "purge_state")
    if not can_swap_states or not all(hasattr(module, _BUILDER) for module in swappers):
        raise NotImplementedError(
            f"DeepSpeed {_vendor.version()} cannot offload to NVMe on Gaudi: it has no asynchronous I/O of its own for "
            "it, and this package puts another one into DeepSpeed 0.18 and 0.19 only: offload to 'cpu', or install one "
            "of these"
        )


def prepare(config: dict[str, Any]) -> None:
    """Have what is offloaded to NVMe go to folders of this process, with `Handle` if DeepSpeed has no own operator.

    DeepSpeed's modules have imported the operator's builder by name, and no argument leads there, so the name is
    replaced in them, and nowhere else: whoever asks DeepSpeed for the operator still gets DeepSpeed's answer.

    Args:
        config: DeepSpeed's configuration, in which `nvme_path` is changed.

    Raises:
        OSError: A folder cannot be made.
    """
    offloads = _config.offloads(config, "nvme")
    if not offloads:
        return
    folders = _swap_folders.make(offloads.values())
    if not _vendor.has_op(_BUILDER):
        for module in _swappers():
            setattr(module, _BUILDER, functools.partial(Builder, folders))
    if "offload_param" in offloads:
        # By default, weights that are soon used again stay, each with one of the few buffers on the host, until there
        # is none left for the next and DeepSpeed gives up.
        config["zero_optimization"].setdefault("stage3_max_reuse_distance", 0)
        _read_each_once()


class _EachOnce:
    """Goes in front of DeepSpeed's class that reads weights from NVMe.

    What is to be read ahead may have a weight twice, as it is used in the forward and in the backward pass of a small
    model; DeepSpeed 0.19 then stops at an assertion.
    """

    def swap_in(self, params: list[Any], *args: Any, **kwargs: Any) -> None:
        """Read weights, each once.

        Args:
            params: The weights.
            *args: DeepSpeed's.
            **kwargs: DeepSpeed's.
        """
        super().swap_in(list(dict.fromkeys(params)), *args, **kwargs)  # type: ignore[misc] # It goes in front.


def _read_each_once() -> None:
    module = importlib.import_module(_PARAMETERS)
    swapper = getattr(module, _PARAMETER_SWAPPER)
    if not issubclass(swapper, _EachOnce):
        setattr(module, _PARAMETER_SWAPPER, type(_PARAMETER_SWAPPER, (_EachOnce, swapper), {}))


def _check_folder(path: object) -> None:
    if not path:
        raise FileNotFoundError("offloading to NVMe needs `nvme_path`, a folder on a local disk")
    folder = Path(str(path))
    if not folder.is_dir():
        raise FileNotFoundError(f"`nvme_path` must be a folder on a local disk, and there is none at {str(folder)!r}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"`nvme_path` must be a folder that can be written, and {str(folder)!r} cannot")


def _swappers() -> list[Any]:
    return [importlib.import_module(name) for name in _SWAPPERS]


def _accelerator() -> Any:
    return _vendor.load().accelerator.get_accelerator()
