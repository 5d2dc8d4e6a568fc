"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch import hpu

from ._base import FusedOptimizer, check, parameters_with_gradients  # Relative, so that type checkers find it too.

if TYPE_CHECKING:
    from collections.abc import Iterable


class FusedSGD(FusedOptimizer):
    """SGD as torch's. Making one takes a card, since the bridge's keeps its step size there.

    Args:
        params: Parameters or groups of them.
        lr: Step size.
        momentum: Share of the old velocity.
        weight_decay: Share of a parameter that is added to its gradient.
        dampening: Share of a gradient that does not enter the velocity.
        nesterov: Whether the velocity looks one step ahead.

    Raises:
        ValueError: If a value is out of its range.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the bridge's signature
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        dampening: float = 0,
        nesterov: bool = False,
    ) -> None:
        check("lr", lr)
        check("momentum", momentum)
        check("weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                f"`nesterov` needs a momentum and no dampening, got momentum={momentum!r}, dampening={dampening!r}"
            )
        hpu.init()
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "dampening": dampening,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults)

    def _step(self) -> None:
        for group in self.param_groups:
            for parameter, gradient in parameters_with_gradients(group):
                direction = gradient
                if group["weight_decay"]:
                    direction = direction.add(parameter, alpha=group["weight_decay"])
                if group["momentum"]:
                    direction = self._with_momentum(parameter, direction, group)
                parameter.add_(direction, alpha=-group["lr"])

    def _with_momentum(self, parameter: torch.Tensor, direction: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.clone(direction)
        else:
            state["momentum_buffer"].mul_(group["momentum"]).add_(direction, alpha=1 - group["dampening"])
        velocity: torch.Tensor = state["momentum_buffer"]
        return direction.add(velocity, alpha=group["momentum"]) if group["nesterov"] else velocity
