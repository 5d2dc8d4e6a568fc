"""Patches for torch 2.0: it has no hpu storages in Python, and preserves random states of CUDA and the CPU only.

Saving copies tensors in dicts, lists and tuples to the CPU, as the bridge does in lazy mode.
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
    """Patch deep copies, pickling, saving, loading and ``fork_rng`` to support hpu tensors."""
    patches: dict[str, tuple[object, Callable[..., Any]]] = {
        "__deepcopy__": (torch.Tensor, _patch_deepcopy),
        "_reduce_ex_internal": (torch.Tensor, _patch_reduce),
        "save": (torch, _patch_save),
        "load": (torch, _patch_load),
        "fork_rng": (torch.random, _patch_fork_rng),
    }
    for name, (owner, wrap) in patches.items():
        setattr(owner, name, wrap(getattr(owner, name)))
    if dist.is_available():
        dist.barrier = _patch_barrier(dist.barrier)


def _patch_deepcopy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> Any:  # noqa: N807 - it replaces one
        if self.device.type != "hpu" or not self.is_leaf:
            return original(self, memo)
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            if self.grad is not None:
                copied.grad = self.grad.detach().clone()
            memo[id(self)] = copied
        return memo[id(self)]

    return __deepcopy__


def _patch_reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _reduce_ex_internal(self: torch.Tensor, protocol: int) -> Any:
        if self.device.type != "hpu":
            return original(self, protocol)
        # As torch 2.0 pickles tensors of other devices without storages in Python. NumPy has no bfloat16.
        tensor = self.detach().cpu()
        array = tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
        rebuild = torch._utils._rebuild_device_tensor_from_numpy  # noqa: SLF001 - every torch can unpickle this
        return rebuild, (array, self.dtype, str(self.device), self.requires_grad)

    return _reduce_ex_internal


def _patch_save(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def save(obj: Any, *args: Any, **kwargs: Any) -> None:
        original(_map_tensors(_to_cpu, obj), *args, **kwargs)

    return save


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu() if tensor.device.type == "hpu" else tensor


def _map_tensors(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """Return ``value`` with ``function`` applied to the tensors in dicts, lists and tuples.

    Not torch's `tree_map`, which turns `torch.Size` into a plain tuple once torch's compiler has been imported.
    """
    if isinstance(value, torch.Tensor):
        return function(value)
    if type(value) in {dict, OrderedDict}:
        return type(value)((key, _map_tensors(function, item)) for key, item in value.items())
    if type(value) in {list, tuple}:
        return type(value)(_map_tensors(function, item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(_map_tensors(function, item) for item in value)
    return value


def _patch_load(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(map_location, (str, torch.device)) or torch.device(map_location).type != "hpu":
            return original(f, map_location, *args, **kwargs)
        loaded = original(f, "cpu", *args, **kwargs)
        return _map_tensors(lambda tensor: tensor.to(map_location), loaded)

    return load


def _patch_fork_rng(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    @contextlib.contextmanager
    def fork_rng(
        devices: Iterable[Any] | None = None, enabled: bool = True, device_type: str = "hpu", **kwargs: Any
    ) -> Iterator[None]:
        # The device is included unless the caller gives an empty list of devices.
        preserve = enabled and device_type == "hpu" and (devices is None or bool(list(devices)))
        state = hpu.random.get_rng_state(0) if preserve else None
        with original([], enabled, **kwargs):
            try:
                yield
            finally:
                if state is not None:
                    hpu.random.set_rng_state(state, 0)

    return fork_rng


def _patch_barrier(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        pg = dist.distributed_c10d._get_default_group() if group is None else group  # noqa: SLF001 - as torch's own
        if not isinstance(pg, dist.ProcessGroup) or dist.get_backend(pg) != "hccl":
            return original(group, async_op, device_ids)
        # torch 2.0 would look up the CPU's backend, which an hccl group does not have.
        backend: Any = pg._get_backend(torch.device("hpu"))  # noqa: SLF001 - as torch's own
        work = backend.barrier()
        if async_op:
            return work
        work.wait()
        return None

    return barrier


def use_backend_for_hpu(name: str, c10d: Any) -> None:
    """Use a backend for hpu tensors instead of those of the CPU and CUDA, and send objects as hpu tensors."""

    class BackendConfig(c10d.BackendConfig):  # type: ignore[misc] # torch's class is Any here
        def __init__(self, backend: str) -> None:
            super().__init__(backend)
            if str(backend).lower() == name:
                self.device_backend_map = {"hpu": c10d.Backend(backend)}

    torch_get_pg_device: Callable[[Any], Any] = c10d._get_pg_device  # noqa: SLF001 - the bridge patches it too

    def get_pg_device(group: Any = None) -> Any:
        return torch.device("hpu") if c10d.get_backend(group) == name else torch_get_pg_device(group)

    c10d.BackendConfig = BackendConfig
    c10d._get_pg_device = get_pg_device  # noqa: SLF001 - as above
