"""What stock torch 2.0 cannot do: it knows no hpu storages in Python, and no random numbers but CUDA's and the CPU's.

Saving goes through the CPU, as the bridge has it in lazy mode: tensors in dicts, lists and tuples become CPU tensors.
"""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from habana_frameworks.torch import hpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def patch() -> None:
    """Let hpu tensors be copied deeply, pickled, saved and loaded, and let random numbers be kept for later."""
    changes: dict[str, tuple[object, Callable[..., Any]]] = {
        "__deepcopy__": (torch.Tensor, _deepcopy),
        "_reduce_ex_internal": (torch.Tensor, _reduce),
        "save": (torch, _save),
        "load": (torch, _load),
        "fork_rng": (torch.random, _fork_rng),
    }
    for name, (owner, change) in changes.items():
        setattr(owner, name, change(getattr(owner, name)))
    if dist.is_available():
        dist.barrier = _barrier(dist.barrier)


def _deepcopy(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> Any:  # noqa: N807 - it replaces one
        if self.device.type != "hpu" or not self.is_leaf:
            return stock(self, memo)
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            if self.grad is not None:
                copied.grad = self.grad.detach().clone()
            memo[id(self)] = copied
        return memo[id(self)]

    return __deepcopy__


def _reduce(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def _reduce_ex_internal(self: torch.Tensor, protocol: int) -> Any:
        if self.device.type != "hpu":
            return stock(self, protocol)
        # As this torch does it for other devices without such storages; NumPy has no bfloat16.
        held = self.detach().cpu()
        array = held.float().numpy() if held.dtype == torch.bfloat16 else held.numpy()
        rebuild = torch._utils._rebuild_device_tensor_from_numpy  # noqa: SLF001 - any torch can load this
        return rebuild, (array, self.dtype, str(self.device), self.requires_grad)

    return _reduce_ex_internal


def _save(stock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(stock)
    def save(obj: Any, *arguments: Any, **options: Any) -> None:
        stock(_each_tensor(_to_host, obj), *arguments, **options)

    return save


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu() if tensor.device.type == "hpu" else tensor


def _each_tensor(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """Change the tensors in dicts, lists and tuples.

    Not torch's `tree_map`: as soon as torch's compiler is imported, that makes plain tuples of the sizes it finds.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in {dict, OrderedDict}:
        return type(value)((key, _each_tensor(change, item)) for key, item in value.items())
    if type(value) in {list, tuple}:
        return type(value)(_each_tensor(change, item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(_each_tensor(change, item) for item in value)
    return value


def _load(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def load(f: Any, map_location: Any = None, *arguments: Any, **options: Any) -> Any:
        if not isinstance(map_location, (str, torch.device)) or torch.device(map_location).type != "hpu":
            return stock(f, map_location, *arguments, **options)
        loaded = stock(f, "cpu", *arguments, **options)
        return _each_tensor(lambda tensor: tensor.to(map_location), loaded)

    return load


def _fork_rng(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    @contextlib.contextmanager
    def fork_rng(
        devices: Iterable[Any] | None = None, enabled: bool = True, device_type: str = "hpu", **options: Any
    ) -> Iterator[None]:
        # The card, unless the caller knows of devices and names it not.
        keeps_card = enabled and device_type == "hpu" and (devices is None or bool(list(devices)))
        state = hpu.random.get_rng_state(0) if keeps_card else None
        with stock([], enabled, **options):
            try:
                yield
            finally:
                if state is not None:
                    hpu.random.set_rng_state(state, 0)

    return fork_rng


def _barrier(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        chosen = dist.distributed_c10d._get_default_group() if group is None else group  # noqa: SLF001 - as torch's own
        if not isinstance(chosen, dist.ProcessGroup) or dist.get_backend(chosen) != "hccl":
            return stock(group, async_op, device_ids)
        # Torch would look for the backend of the CPU in a group that has none.
        backend: Any = chosen._get_backend(torch.device("hpu"))  # noqa: SLF001 - as torch's own
        work = backend.barrier()
        if async_op:
            return work
        work.wait()
        return None

    return barrier
