"""Availability of float8, and the context in which layers use it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch import hpu
from habana_frameworks.torch.hpex.experimental._te_impl.recipe import DelayedScaling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from habana_frameworks.torch.hpex.experimental._te_impl.scaling import Scaling

__all__ = ["FP8GlobalStateManager", "fp8_autocast", "is_fp8_available"]


def is_fp8_available() -> tuple[bool, str]:
    """Acquire a device and return whether it has float8, with the reason if not."""
    if hpu.get_device_name() == "GAUDI":
        return False, "FP8 not supported on Gaudi, Gaudi2 or higher required"
    if not hasattr(torch, "float8_e5m2"):
        return False, f"FP8 requires torch >= 2.1, got {torch.__version__}"
    return True, ""


class FP8GlobalStateManager:
    """State of :func:`fp8_autocast` in this process.

    Attributes:
        enabled: Whether layers compute in float8.
        recipe: The scaling recipe.
        group: Process group that shares the amax; None for the default group.
        force_measurement: Whether to measure the amax; None to follow the recipe's interval.
        pending: Scalings measured in the outermost context, whose scales are updated at its end.
        pending_backward: The same for a backward pass.
    """

    enabled = False
    recipe = DelayedScaling()
    group: Any = None
    force_measurement: bool | None = None
    pending: list[Scaling] = []  # noqa: RUF012 - the state is the class
    pending_backward: list[Scaling] = []  # noqa: RUF012 - as above

    @classmethod
    def is_fp8_available(cls) -> tuple[bool, str]:
        """Acquire a device and return whether it has float8, with the reason if not."""
        return is_fp8_available()

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        """Return whether layers compute in float8."""
        return cls.enabled


@contextlib.contextmanager
def fp8_autocast(
    enabled: bool = False,
    force_measurement: bool | None = None,
    fp8_recipe: DelayedScaling | None = None,
    fp8_group: Any = None,
) -> Iterator[None]:
    """Return a context manager in which the engine's layers compute in float8.

    Args:
        enabled: Whether they do. Unlike NVIDIA's, the default is False.
        force_measurement: Whether to measure the amax; None to follow the recipe's interval.
        fp8_recipe: The scaling recipe; None for ``DelayedScaling()``.
        fp8_group: Process group that shares the amax; None for the default group.

    Raises:
        AssertionError: If the device has no float8.
    """
    if enabled:
        available, reason = is_fp8_available()
        if not available:
            raise AssertionError(reason)
    state = FP8GlobalStateManager
    names = ("enabled", "recipe", "group", "force_measurement")
    before = {name: getattr(state, name) for name in names}
    values = (enabled, fp8_recipe or DelayedScaling(), fp8_group, force_measurement)
    for name, value in zip(names, values, strict=True):
        setattr(state, name, value)
    try:
        yield
    finally:
        if enabled and not before["enabled"]:
            update_scales(state.pending, state.recipe, state.group)
        for name, value in before.items():
            setattr(state, name, value)


def update_scales(pending: list[Scaling], recipe: DelayedScaling, group: Any) -> None:
    """Compute the scales of measured tensors from the largest amax of a group's ranks, and clear the list."""
    scalings = pending[:]
    pending.clear()
    if not scalings:
        return
    if recipe.reduce_amax and torch.distributed.is_available() and torch.distributed.is_initialized():
        amaxes = torch.stack([scaling.amax_history[0] for scaling in scalings])
        torch.distributed.all_reduce(amaxes, op=torch.distributed.ReduceOp.MAX, group=group)
        for scaling, amax in zip(scalings, amaxes, strict=True):
            scaling.amax_history[0] = amax
    for scaling in scalings:
        scaling.update_scale(recipe)


def update_scales_after_backward(scaling: Scaling, recipe: DelayedScaling, group: Any) -> None:
    """Compute the scale of a measured gradient when the backward pass ends, as those of the forward pass."""
    pending = FP8GlobalStateManager.pending_backward

    def update() -> None:
        scalings = pending[:]
        update_scales(pending, recipe, group)
        for measured in scalings:
            measured.advance()

    pending.append(scaling)
    # Each time, because those of a backward pass that raised have not run. torch has no public name for it.
    torch.autograd.Variable._execution_engine.queue_callback(update)  # noqa: SLF001
