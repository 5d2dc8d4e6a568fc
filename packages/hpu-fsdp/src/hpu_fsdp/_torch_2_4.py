"""Patches and checks that FSDP needs on torch 2.4 and older, the torch of SynapseAI 1.18 and older."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.fsdp import _optim_utils
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

from hpu_fsdp._torch import HPUShardedGradScaler, replaced


def make_scaler() -> ShardedGradScaler:
    """Return a gradient scaler for "16-mixed"."""
    # torch before 2.3 supports CUDA only, and has no such argument.
    if "device" not in inspect.signature(ShardedGradScaler).parameters:
        raise NotImplementedError("precision='16-mixed' needs torch 2.3 or newer with FSDP: use 'bf16-mixed'")
    return HPUShardedGradScaler("hpu")


def frees_storages(device: torch.device) -> bool:
    """Return whether torch frees storages on a device, as FSDP does with gathered parameters.

    Stock torch does from 2.3 on; what Intel's builds of older ones do is unknown.
    """
    try:
        torch.empty(1, device=device).untyped_storage().resize_(0)
    except RuntimeError:
        return False
    return True


@contextmanager
def optimizer_states_on(device: torch.device) -> Iterator[None]:
    """Return a context in which torch allocates the optimizer states of a sharded checkpoint on a device.

    torch 2.4 passes the index alone, which means CUDA. torch 2.13 does not; which release corrected it is unknown, so
    the function is replaced on every torch.
    """
    from torch.distributed.checkpoint import optimizer

    def allocate(properties: Any, size: Sequence[int], device_type: str = device.type) -> torch.Tensor:
        options = {name: getattr(properties, name) for name in ("dtype", "layout", "requires_grad", "pin_memory")}
        return torch.empty(size, device=device if device_type == device.type else device_type, **options)

    with replaced(optimizer, "_alloc_tensor", allocate):
        yield


@contextmanager
def gathering_without_cuda() -> Iterator[None]:
    """Return a context in which torch gathers optimizer states without CUDA.

    torch 2.2 synchronizes CUDA and logs the memory that it uses.
    """
    gather: Any = _optim_utils._allgather_orig_param_states  # noqa: SLF001 - its names tell whether torch does.
    if "cuda" not in gather.__code__.co_names:
        yield
        return
    with replaced(torch.cuda, "synchronize", _nothing), replaced(torch.cuda, "memory_summary", _nothing):
        yield


def _nothing() -> None:
    """Do nothing, in place of a function whose effect is not needed."""
