"""State of a model and of random numbers, saved before a warm-up and restored afterwards."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from hpu_bucketing._lightning import isolate_rng
from hpu_core import bridge

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["preserve_state"]


@contextlib.contextmanager
def preserve_state(module: torch.nn.Module) -> Iterator[None]:
    """Return a context that restores a model's buffers, gradients and states of torchmetrics, and random numbers.

    Parameters are not saved, because a pass without the optimizer's step does not change them.
    """
    buffers = [(owner, name, buffer, buffer.clone()) for owner, name, buffer in _buffers(module)]
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    copies = [None if gradient is None else gradient.clone() for _, gradient in gradients]
    metrics = [(metric, _metric_state(metric)) for metric in _metrics(module)]
    random_numbers = isolate_rng()
    random_numbers.__enter__()
    # The copies must not become part of the graph of the first pass.
    _launch_graph()
    try:
        yield
    finally:
        # Lightning's context restores the numbers only if it is left without an exception.
        random_numbers.__exit__(None, None, None)
        with torch.no_grad():
            for owner, name, buffer, value in buffers:
                buffer.copy_(value)
                owner._buffers[name] = buffer  # noqa: SLF001 - a model may have assigned another tensor
            for (parameter, gradient), saved in zip(gradients, copies, strict=True):
                if gradient is not None and saved is not None:
                    gradient.copy_(saved)
                parameter.grad = gradient
            for metric, state in metrics:
                vars(metric).update(state)
        _launch_graph()


def _buffers(module: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    for owner in module.modules():
        for name, buffer in owner._buffers.items():  # noqa: SLF001 - `named_buffers` does not tell the owner
            if buffer is not None:
                yield owner, name, buffer


def _metrics(module: torch.nn.Module) -> Iterator[Any]:
    # Lightning imports torchmetrics.
    torchmetrics = sys.modules.get("torchmetrics")
    for owner in module.modules():
        if torchmetrics is not None and isinstance(owner, torchmetrics.Metric):
            yield owner


def _metric_state(metric: Any) -> dict[str, Any]:
    """Return the attributes that an update changes; their tensors are replaced or changed in place."""
    names = [*metric._defaults, "_update_count", "_update_called", "_computed"]  # noqa: SLF001 - no public API restores them
    return {name: _clone(vars(metric)[name]) for name in names if name in vars(metric)}


def _clone(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return list(value) if isinstance(value, list) else value


def _launch_graph() -> None:
    if bridge.is_loaded():
        bridge.mark_step()
