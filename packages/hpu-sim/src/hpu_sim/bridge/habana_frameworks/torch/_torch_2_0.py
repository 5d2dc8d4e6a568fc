"""What stock torch 2.0 cannot do with hpu tensors: it knows no hpu storages in Python. Later releases do.

Saving goes through the CPU, as the bridge has it in lazy mode: tensors in dicts, lists and tuples become CPU tensors.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable


def patch() -> None:
    """Let hpu tensors be copied deeply, saved and loaded."""
    changes: dict[str, tuple[object, Callable[..., Any]]] = {
        "__deepcopy__": (torch.Tensor, _deepcopy),
        "save": (torch, _save),
        "load": (torch, _load),
    }
    for name, (owner, change) in changes.items():
        setattr(owner, name, change(getattr(owner, name)))


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


def _save(stock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(stock)
    def save(obj: Any, *arguments: Any, **options: Any) -> None:
        stock(tree_map(_to_host, obj), *arguments, **options)

    return save


def _to_host(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, torch.Tensor) and leaf.device.type == "hpu" else leaf


def _load(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def load(f: Any, map_location: Any = None, *arguments: Any, **options: Any) -> Any:
        if not isinstance(map_location, (str, torch.device)) or torch.device(map_location).type != "hpu":
            return stock(f, map_location, *arguments, **options)
        loaded = stock(f, "cpu", *arguments, **options)
        return tree_map(lambda leaf: leaf.to(map_location) if isinstance(leaf, torch.Tensor) else leaf, loaded)

    return load
