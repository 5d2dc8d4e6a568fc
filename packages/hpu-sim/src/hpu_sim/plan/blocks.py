"""Repeated blocks of a model, such as the layers of a transformer, whose activations can be recomputed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def repeated(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the outermost modules with children whose class their parent has twice, in the order of the model."""
    chosen: list[torch.nn.Module] = []
    inside: set[int] = set()
    for module in model.modules():
        kinds = Counter(type(child) for child in module.children())
        for child in module.children():
            if kinds[type(child)] > 1 and any(True for _ in child.children()) and id(child) not in inside:
                chosen.append(child)
                inside.update(map(id, child.modules()))
    return chosen


def describe(model: torch.nn.Module) -> tuple[str, int]:
    """Return class and number of the repeated blocks."""
    found = repeated(model)
    names = sorted({type(_unwrapped(each)).__name__ for each in found})
    return " or ".join(names), len(found)


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    inner: torch.nn.Module = getattr(module, "_checkpoint_wrapped_module", module)
    return inner


def checkpoint(model: torch.nn.Module, count: int) -> None:
    """Recompute the activations of the first repeated blocks, if any, in the backward pass."""
    if not count:
        return
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    chosen = set(map(id, repeated(model)[:count]))
    apply_activation_checkpointing(model, check_fn=lambda module: id(module) in chosen)
