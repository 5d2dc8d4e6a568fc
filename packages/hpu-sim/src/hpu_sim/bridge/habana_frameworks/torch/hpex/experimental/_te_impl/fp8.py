"""Whether there is float8, and the context in which layers use it."""

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
    """Take a card and return whether it has float8, and if not the reason."""
    if hpu.get_device_name() == "GAUDI":
        return False, "FP8 not supported on Gaudi, Gaudi2 or higher required"
    if not hasattr(torch, "float8_e5m2"):
        return False, f"FP8 needs torch 2.1 or newer, this is {torch.__version__}"
    return True, ""


class FP8GlobalStateManager:
    """The state of :func:`fp8_autocast` in this process.

    Attributes:
        enabled: Whether layers compute in float8.
        recipe: How numbers are scaled.
        group: Ranks that share the largest numbers; None for all.
        force_measurement: Whether this context measures; None leaves it to the recipe's interval.
        measured: What was measured in the outermost context.
    """

    enabled = False
    recipe = DelayedScaling()
    group: Any = None
    force_measurement: bool | None = None
    measured: list[Scaling] = []  # noqa: RUF012 - the state is the class

    @classmethod
    def is_fp8_available(cls) -> tuple[bool, str]:
        """Take a card and return whether it has float8, and if not the reason."""
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
    """Return a context in which the engine's layers compute in float8. It is off by default.

    Args:
        enabled: Whether they do.
        force_measurement: Whether the largest numbers are measured; None leaves it to the recipe's interval.
        fp8_recipe: How numbers are scaled; None for ``DelayedScaling()``.
        fp8_group: Process group whose ranks share the largest numbers; None for all.

    Raises:
        AssertionError: If the card has no float8.
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
            _finish_step(state.recipe, state.group)
        for name, value in before.items():
            setattr(state, name, value)


def _finish_step(recipe: DelayedScaling, group: Any) -> None:
    measured = FP8GlobalStateManager.measured[:]
    FP8GlobalStateManager.measured.clear()
    if not measured:
        return
    if recipe.reduce_amax and torch.distributed.is_available() and torch.distributed.is_initialized():
        largest = torch.stack([scaling.history[0] for scaling in measured])
        torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=group)
        for scaling, amax in zip(measured, largest, strict=True):
            scaling.history[0] = amax
    for scaling in measured:
        scaling.rescale(recipe)
