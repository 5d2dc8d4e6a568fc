"""``mark_step``, which has no effect in eager mode: that has no graphs."""

from __future__ import annotations

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.device.events import Event, emit
from hpu_sim.device.runtime import acquire_device, native


def mark_step(device_str: str = "", sync: bool = False) -> None:  # noqa: ARG001 - the bridge's signature
    """End the current graph and run it.

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


def _mark_step_if_lazy(device_str: str = "") -> None:
    """End the current graph in lazy mode. DeepSpeed's fused Adam uses this name."""
    mark_step(device_str)
