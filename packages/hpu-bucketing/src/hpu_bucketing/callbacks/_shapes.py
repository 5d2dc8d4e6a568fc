"""Names and shapes of a batch's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["tensor_shapes"]


def tensor_shapes(batch: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and shape of each tensor of a batch."""
    if isinstance(batch, torch.Tensor):
        yield "batch", tuple(batch.shape)
        return
    items = batch.items() if hasattr(batch, "items") else enumerate(batch) if isinstance(batch, (list, tuple)) else ()
    for key, value in items:
        name = key if isinstance(key, str) else f"batch[{key}]"
        for index, leaf in enumerate(tree_flatten(value)[0]):
            if isinstance(leaf, torch.Tensor):
                yield name if leaf is value else f"{name}[{index}]", tuple(leaf.shape)
