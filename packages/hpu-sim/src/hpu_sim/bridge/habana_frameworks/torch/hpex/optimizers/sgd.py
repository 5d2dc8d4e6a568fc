"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch import hpu

from ._base import FusedOptimizer, parameters_with_gradients, validate  # Relative, for type checkers.

if TYPE_CHECKING:
    from collections.abc import Iterable


class FusedSGD(FusedOptimizer):
    """torch's SGD. The constructor acquires a device, as the bridge's, which keeps the learning rate there.

    Raises:
        ValueError: If a value is out of range.
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
        validate("lr", lr)
        validate("momentum", momentum)
        validate("weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                f"`nesterov` requires momentum and no dampening, got momentum={momentum!r}, dampening={dampening!r}"
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
                    direction = self._apply_momentum(parameter, direction, group)
                parameter.add_(direction, alpha=-group["lr"])

    def _apply_momentum(self, parameter: torch.Tensor, direction: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.clone(direction)
        else:
            state["momentum_buffer"].mul_(group["momentum"]).add_(direction, alpha=1 - group["dampening"])
        buffer: torch.Tensor = state["momentum_buffer"]
        return direction.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
