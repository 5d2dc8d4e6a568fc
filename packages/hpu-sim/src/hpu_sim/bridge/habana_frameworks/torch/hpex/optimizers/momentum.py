"""Momentum as TensorFlow's operator ResourceApplyMomentum computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._base import FusedOptimizer, check, parameters_with_gradients  # Relative, so that type checkers find it too.

if TYPE_CHECKING:
    from collections.abc import Iterable


class FusedResourceApplyMomentum(FusedOptimizer):
    """Momentum: the velocity is the old one times ``momentum`` plus the gradient, and a step is ``lr`` of it.

    Args:
        params: Parameters or groups of them.
        lr: Step size.
        momentum: Share of the old velocity.
        weight_decay: Share of a parameter that is added to its gradient.

    Raises:
        ValueError: If a value is out of its range.
    """

    def __init__(self, params: Iterable[Any], lr: float, momentum: float = 0, weight_decay: float = 0) -> None:
        check("lr", lr)
        check("momentum", momentum)
        check("weight_decay", weight_decay)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def _step(self) -> None:
        for group in self.param_groups:
            for parameter, gradient in parameters_with_gradients(group):
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                velocity = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
                velocity.add_(parameter, alpha=group["weight_decay"])
                parameter.add_(velocity, alpha=-group["lr"])
