"""Batches of a program: their number per step, and another size for them that takes no memory of the host."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.prediction import torch_tools
from hpu_sim.prediction.recording import TensorInfo

if TYPE_CHECKING:
    import torch

# Number of the Trainer among iterators.
_TRAINER: Final = -1


class Batches:
    """Batches that a program draws from its DataLoaders in a step.

    Attributes:
        inputs: Tensors of the first one.
        has_new_size: Whether a batch has got another size.
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.inputs: tuple[TensorInfo, ...] = ()
        self.has_new_size = False

    def add(self, iterator: Any, batch: Any) -> None:
        """Take a batch of an iterator of a DataLoader; None for one that the Trainer trains on, whatever it is from."""
        source = _TRAINER if iterator is None else id(iterator)
        if not self._counts or (source == _TRAINER and _TRAINER not in self._counts):
            self.inputs = tuple(
                TensorInfo(str(each.dtype).removeprefix("torch."), tuple(each.shape), each.nbytes)
                for each in torch_tools.tensors_in(batch)
            )
        self._counts[source] += 1

    def __len__(self) -> int:
        """Return the number of those that the Trainer trained on, else of those of the loader that most are from."""
        return self._counts[_TRAINER] or max(self._counts.values(), default=0)

    def clear(self) -> None:
        """Begin a step, in which none is drawn yet."""
        self._counts.clear()
        self.inputs = ()

    def resize(self, batch: Any, size: int, before: int | None) -> Any:
        """Return a batch with another number of samples than it has, by default that of its first tensor.

        Tensors on the host are views, and those on the device have no data.
        """
        if before is None:
            before = next((len(each) for each in torch_tools.tensors_in(batch) if each.dim()), None)
        if before is None:
            return batch
        result = _resize(batch, before, size)
        if result is not batch:
            self.has_new_size = True
        return result


def _resize(value: Any, before: int, size: int) -> Any:
    """Return a value with ``size`` samples wherever it has ``before``; the value itself if it has them nowhere."""
    import torch

    if isinstance(value, torch.Tensor):
        return _resize_tensor(value, size) if value.dim() and len(value) == before else value
    if isinstance(value, Mapping):
        return _resize_mapping(value, before, size)
    return _resize_sequence(value, before, size) if isinstance(value, (list, tuple)) else value


def _resize_mapping(value: Mapping[Any, Any], before: int, size: int) -> Any:
    items = {name: _resize(each, before, size) for name, each in value.items()}
    if all(items[name] is each for name, each in value.items()):
        return value
    with contextlib.suppress(TypeError):
        return type(value)(items)  # type: ignore[call-arg] # such as a dict, or transformers' BatchEncoding
    return items


def _resize_sequence(value: Any, before: int, size: int) -> Any:
    parts = [_resize(each, before, size) for each in value]
    if any(new is not old for new, old in zip(parts, value, strict=True)):
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if len(value) == before:
        # A list of samples, such as images of different sizes.
        return type(value)(value[index % before] for index in range(size))
    return value


def _resize_tensor(tensor: torch.Tensor, size: int) -> torch.Tensor:
    if tensor.device.type != "cpu":
        return tensor.new_empty((size, *tensor.shape[1:]))
    return tensor[:size] if size <= len(tensor) else tensor[:1].expand(size, *tensor.shape[1:])
