"""Cache keys of inputs, and copies of inputs into the tensors of a capture."""

from __future__ import annotations

from typing import Any

import torch


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
    if type(dst) is not type(src) and not (isinstance(dst, torch.Tensor) and isinstance(src, torch.Tensor)):
        raise TypeError(f"`src` must have the structure of `dst`, got {type(src).__name__} for {type(dst).__name__}")
    if isinstance(dst, dict):
        for key, target in dst.items():
            copy_to(target, src[key])
    elif isinstance(dst, (list, tuple)):
        for target, source in zip(dst, src, strict=True):
            copy_to(target, source)
    elif isinstance(dst, torch.Tensor):
        with torch.no_grad():
            dst.copy_(src)
