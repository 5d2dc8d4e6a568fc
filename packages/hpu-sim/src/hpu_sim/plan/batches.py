"""Batches of a program: their number per step, and another size for them that takes no memory of the host."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpu_sim.prediction import torch_tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from hpu_sim.plan.session import Session


class Batches:
    """Batches that a program draws from its DataLoaders.

    Attributes:
        last: First batch drawn since the last step.
        was_resized: Whether a batch has got another size.
    """

    def __init__(self) -> None:
        self._drawn: Counter[int] = Counter()
        self.last: Any = None
        self.was_resized = False

    def add(self, loader: object, batch: Any) -> None:
        """Take a batch of a loader."""
        if not self._drawn:
            self.last = batch
        self._drawn[id(loader)] += 1

    def count(self) -> int:
        """Return the batches of the loader that most were drawn from since the last call."""
        count = max(self._drawn.values(), default=0)
        self._drawn.clear()
        return count

    def resize(self, batch: Any, size: int, before: int | None) -> Any:
        """Return a batch with another number of samples.

        Tensors on the host are views, and those on the device have no data.

        Args:
            batch: Batch.
            size: Samples that it gets.
            before: Samples that it has; None for those of its first tensor.
        """
        if before is None:
            before = next((len(each) for each in torch_tools.tensors_in(batch) if each.dim()), None)
        resized = batch if before is None else _resize(batch, before, size)
        self.was_resized = self.was_resized or resized is not batch
        return resized


@contextlib.contextmanager
def observed(session: Session) -> Iterator[None]:
    """Observe what is drawn from every DataLoader, and resize it if the Trainer does not do so on the device."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    original: Any = _BaseDataLoaderIter.__next__

    def draw(self: Any) -> Any:
        batch = original(self)
        if session.options.batch_size is not None and not session.fits:
            before = getattr(self._index_sampler, "batch_size", None)
            batch = session.batches.resize(batch, session.options.batch_size, before)
        session.batches.add(self, batch)
        return batch

    iterator: Any = _BaseDataLoaderIter
    iterator.__next__ = draw
    try:
        yield
    finally:
        iterator.__next__ = original


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
