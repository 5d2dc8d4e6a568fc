"""Pickling of device tensors as CPU tensors, for `torch.save`."""

import pickle
from collections.abc import Callable
from typing import Any, BinaryIO

import torch
from torch.nn.parameter import is_lazy
from torch.serialization import DEFAULT_PROTOCOL

from hpu_core import bridge

_original_save: Callable[..., None] = torch.serialization.save


def save(obj: object, file: BinaryIO) -> None:
    """Write `obj` like `torch.save`, with every tensor on the CPU. `obj` does not change.

    The pickler converts the tensors, so it finds them wherever pickle does: in containers of any kind, dataclasses and
    attributes. Tensors that share a storage share one in the file, and the storage is copied once.
    """
    _torch_save()(obj, file, pickle_module=_Pickle)


def _torch_save() -> Callable[..., None]:
    """Return `torch.save`, which a program may have wrapped, or torch's own if the bridge has replaced it.

    In lazy mode the bridge's function copies every tensor separately, so that tensors no longer share storages.
    """
    save: Callable[..., None] = torch.save
    return _original_save if bridge.is_own_function(save) else save


class _Pickler(pickle.Pickler):
    """Pickler of device tensors as CPU tensors. Tensors that share a storage share its copy."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # By storage address and dtype. Keeping the storage alive prevents reuse of its address.
        self._storages: dict[tuple[int, torch.dtype], tuple[torch.UntypedStorage, torch.Tensor]] = {}

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or obj.device.type in {"cpu", "meta"}:
            return NotImplemented
        # A Parameter pickles its `data` as a plain tensor, and an uninitialized parameter has no data.
        if isinstance(obj, torch.nn.Parameter) or is_lazy(obj):
            return NotImplemented
        reduce: Callable[[int], Any] = self.cpu_copy(obj).__reduce_ex__
        return reduce(DEFAULT_PROTOCOL)

    def cpu_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a CPU tensor that equals `tensor`, with its `requires_grad` and its Python attributes."""
        if type(tensor) is torch.Tensor and tensor.layout is torch.strided:
            copy = self._view_of_copy(tensor.detach())
        else:
            with torch.no_grad():
                copy = tensor.cpu()
        # Attributes that a subclass sets in `cpu` take precedence.
        vars(copy).update({**vars(tensor), **vars(copy)})
        return copy.requires_grad_(tensor.requires_grad)

    def _view_of_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the view of the copied storage that corresponds to `tensor`.

        The storage is copied as a tensor, never as raw bytes: the bridge may keep a weight permuted in device memory,
        and in lazy mode a storage has no bytes until its graph has run.
        """
        storage = tensor.untyped_storage()
        numel = storage.nbytes() // tensor.element_size()
        if _last_element(tensor) >= numel:
            # The bridge has not allocated the storage yet.
            return tensor.cpu()
        # No public API identifies a storage that has no data yet.
        key = (storage._cdata, tensor.dtype)  # noqa: SLF001
        if key not in self._storages:
            self._storages[key] = (storage, _full_storage(tensor, numel).cpu())
        _, copy = self._storages[key]
        return copy.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


class _Pickle:
    """Stand-in for the module `pickle`, of which `torch.save` uses `Pickler`."""

    Pickler = _Pickler


def _full_storage(tensor: torch.Tensor, numel: int) -> torch.Tensor:
    """Return the storage of `tensor`, which has `numel` elements, as a tensor of shape `(numel,)`."""
    if tensor.numel() == numel and tensor.is_contiguous():
        # The common case, without an unusual view for the bridge.
        return tensor.view(numel)
    return tensor.as_strided((numel,), (1,), 0)


def _last_element(tensor: torch.Tensor) -> int:
    """Return the offset in the storage, in elements, of the tensor's last element."""
    steps = ((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return int(tensor.storage_offset()) + sum(steps)
