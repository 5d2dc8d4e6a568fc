"""Cache keys of inputs, and copies of inputs into the tensors of a capture."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten


def input_hash(obj: Any) -> int:
    """Return a hash of inputs that is equal for those that can share a captured graph.

    Args:
        obj: A tensor, hashed by shape, dtype and device, a container of inputs, or any other hashable value.
    """
    if isinstance(obj, dict):
        return input_hash(tuple(obj.items()))
    if isinstance(obj, (list, tuple)):
        return hash(tuple(input_hash(element) for element in obj))
    if isinstance(obj, torch.Tensor):
        return hash((obj.shape, obj.dtype, obj.device.type))
    return hash(obj)


def copy_to(dst: Any, src: Any) -> None:
    """Copy every tensor of ``src`` into its counterpart in ``dst``.

    Args:
        dst: A tensor or a container of tensors.
        src: The same structure with tensors of the same shapes.

    Raises:
        TypeError: If the structures differ.
    """
    targets, structure = tree_flatten(dst)
    sources, given = tree_flatten(src)
    if structure != given:
        raise TypeError(f"`src` must have the structure of `dst`, got {type(src).__name__} for {type(dst).__name__}")
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            if isinstance(target, torch.Tensor):
                target.copy_(source)
