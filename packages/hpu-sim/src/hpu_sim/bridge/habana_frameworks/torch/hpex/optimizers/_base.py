"""What the fused optimizers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch.core.step_closure import _mark_step_if_lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class FusedOptimizer(torch.optim.Optimizer):
    """An optimizer whose step is a graph of its own in lazy mode."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step.

        Args:
            closure: Computes the loss and the gradients anew.

        Returns:
            The closure's loss, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        _mark_step_if_lazy()
        self._step()
        _mark_step_if_lazy()
        return loss

    def _step(self) -> None:
        raise NotImplementedError


def parameters_with_gradients(group: dict[str, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the parameters of a group that have a gradient, each with it.

    Raises:
        RuntimeError: If a gradient is sparse.
    """
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            raise RuntimeError("fused optimizers do not take sparse gradients; use a dense embedding")
        yield parameter, parameter.grad


def check(name: str, value: float, *, below: float | None = None) -> None:
    """Raise a ValueError for a setting that is negative, or not below a bound."""
    if value < 0 or (below is not None and value >= below):
        bound = "" if below is None else f" and below {below}"
        raise ValueError(f"`{name}` must be at least 0{bound}, got {value!r}")
