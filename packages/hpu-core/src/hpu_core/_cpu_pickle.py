"""Pickling tensors of a device as tensors of the CPU, for `torch.save`."""

import pickle
from collections.abc import Callable
from typing import Any, BinaryIO

import torch
from torch.nn.parameter import is_lazy
from torch.serialization import DEFAULT_PROTOCOL

# The bridge replaces `torch.save` in lazy mode by one that copies every tensor for itself, which breaks up shared
# storages. This is the function underneath.
_torch_save: Callable[..., None] = torch.serialization.save


def save(obj: object, file: BinaryIO) -> None:
    """Write `obj` like `torch.save`, with every tensor on the CPU; `obj` itself stays as it is.

    Works through the pickler, so tensors are found wherever pickle finds them: in containers of any kind, dataclasses,
    attributes. Tensors that share a storage share one in the file, and one copy of it is made.

    Args:
        obj: Anything that can be pickled.
        file: Where to write; need not be seekable.
    """
    _torch_save(obj, file, pickle_module=_Pickle)


class _Pickler(pickle.Pickler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._copies = _Copies()

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or obj.device.type in {"cpu", "meta"}:
            return NotImplemented
        # A Parameter pickles its `data`, which comes here as a plain tensor; a lazy module's tensor has no data yet.
        if isinstance(obj, torch.nn.Parameter) or is_lazy(obj):
            return NotImplemented
        reduce: Callable[[int], Any] = self._copies.of(obj).__reduce_ex__
        return reduce(DEFAULT_PROTOCOL)


class _Pickle:
    """Stands in for the module `pickle` in `torch.save`, which takes its `Pickler`."""

    Pickler = _Pickler


class _Copies:
    """Copies of tensors on the CPU, sharing storages where the originals do."""

    def __init__(self) -> None:
        # By the address of the storage and the type of its elements. The storage is kept so that its address cannot
        # be given to another one in the meantime.
        self._wholes: dict[tuple[int, torch.dtype], tuple[torch.UntypedStorage, torch.Tensor]] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the CPU that equals `tensor`, with its `requires_grad` and its Python attributes."""
        if type(tensor) is torch.Tensor and tensor.layout is torch.strided:
            copy = self._view(tensor.detach())
        else:
            with torch.no_grad():
                copy = tensor.cpu()
        # What a subclass's own `cpu` has set goes before.
        vars(copy).update({**vars(tensor), **vars(copy)})
        return copy.requires_grad_(tensor.requires_grad)

    def _view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the view of the storage's copy that `tensor` is of the storage.

        The storage is copied as a tensor, never as raw bytes: the bridge may keep a weight permuted in the card's
        memory, and in lazy mode a storage has no bytes until its graph has run.
        """
        storage = tensor.untyped_storage()
        numel = storage.nbytes() // tensor.element_size()
        if _last_element(tensor) >= numel:
            # No storage to speak of; the bridge may not have given it one yet.
            return tensor.cpu()
        # There is no public way to tell that two tensors share a storage which holds before the storage has data.
        key = (storage._cdata, tensor.dtype)  # noqa: SLF001
        if key not in self._wholes:
            self._wholes[key] = (storage, _whole(tensor, numel).cpu())
        _, whole = self._wholes[key]
        return whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _whole(tensor: torch.Tensor, numel: int) -> torch.Tensor:
    """Return the whole storage of `tensor`, `numel` elements, as a tensor of shape `(numel,)`."""
    if tensor.numel() == numel and tensor.is_contiguous():
        # Nearly all tensors of a model; spares the bridge an unusual view.
        return tensor.view(numel)
    return tensor.as_strided((numel,), (1,), 0)


def _last_element(tensor: torch.Tensor) -> int:
    """Return the place in the storage, counted in elements, of the tensor's last element."""
    steps = ((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return int(tensor.storage_offset()) + sum(steps)
