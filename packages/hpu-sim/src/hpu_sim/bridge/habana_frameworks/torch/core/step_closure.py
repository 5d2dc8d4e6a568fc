"""``mark_step`` and step closures. Eager mode has no graphs, and these functions have no effect there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.device.events import Event, emit
from hpu_sim.device.runtime import acquire_device, native

if TYPE_CHECKING:
    from collections.abc import Callable

_closures: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def mark_step(device_str: str = "", sync: bool = False) -> None:  # noqa: ARG001 - the bridge's signature
    """End the current graph and run it, then run the step closures.

    Args:
        device_str: Ignored.
        sync: Whether to wait for the device.
    """
    emit(Event("mark_step"))
    if not is_lazy():
        return
    acquire_device()
    if sync:
        native().synchronize()
    else:
        native().mark_step()
    pending, _closures[:] = list(_closures), []
    for closure, args in pending:
        closure(*args)


def iter_mark_step(device_str: str = "") -> None:
    """End the current graph at the end of an iteration."""
    mark_step(device_str)


def add_step_closure(closure: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
    """Run ``closure(*args)`` at the next :func:`mark_step`; in eager mode never."""
    if is_lazy():
        _closures.append((closure, tuple(args)))


def _mark_step_if_lazy(device_str: str = "") -> None:
    """End the current graph in lazy mode. DeepSpeed's fused Adam uses this name."""
    mark_step(device_str)
