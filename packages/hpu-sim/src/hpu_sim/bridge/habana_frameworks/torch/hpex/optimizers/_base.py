"""Base class of the fused optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch.core.step_closure import _mark_step_if_lazy
from hpu_sim.device.events import one_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class FusedOptimizer(torch.optim.Optimizer):
    """Optimizer whose step is a graph of its own in lazy mode."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step, and return the loss of the closure, which recomputes the gradients; None without one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        _mark_step_if_lazy()
        with one_kernel():
            self._step()
        _mark_step_if_lazy()
        return loss

    def _step(self) -> None:
        raise NotImplementedError


def parameters_with_gradients(group: dict[str, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the parameters of a group that have a gradient, each with its gradient.

    Raises:
        RuntimeError: If a gradient is sparse.
    """
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            raise RuntimeError("fused optimizers do not support sparse gradients; use a dense embedding")
        yield parameter, parameter.grad


def validate(name: str, value: float, *, less_than: float | None = None) -> None:
    """Raise a ValueError if a hyperparameter is negative or not less than a bound."""
    if value < 0 or (less_than is not None and value >= less_than):
        bound = "" if less_than is None else f" and less than {less_than}"
        raise ValueError(f"`{name}` must be at least 0{bound}, got {value!r}")
