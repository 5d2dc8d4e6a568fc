"""Adagrad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch.hpu._utils import init

from ._base import FusedOptimizer, parameters_with_gradients, validate  # Relative, for type checkers.

if TYPE_CHECKING:
    from collections.abc import Iterable


class FusedAdagrad(FusedOptimizer):
    """torch's Adagrad with the learning rate that it is constructed with, whatever a scheduler does to the groups.

    Constructing it acquires a device.

    Raises:
        RuntimeError: If no device can be acquired.
        ValueError: If a value is out of range.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the bridge's signature
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
        }
        for name, value in defaults.items():
            validate(name, value)
        init()
        self._rates: list[float] = []
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, and keep their learning rate."""
        super().add_param_group(param_group)
        self._rates.append(self.param_groups[-1]["lr"])

    def _step(self) -> None:
        for group, learning_rate in zip(self.param_groups, self._rates, strict=True):
            for parameter, gradient in parameters_with_gradients(group):
                direction = gradient
                if group["weight_decay"]:
                    direction = direction.add(parameter, alpha=group["weight_decay"])
                state = self.state[parameter]
                if "sum" not in state:
                    state["sum"] = torch.full_like(parameter, group["initial_accumulator_value"])
                rate = learning_rate / (1 + state.get("step", 0) * group["lr_decay"])
                state["step"] = state.get("step", 0) + 1
                state["sum"].addcmul_(direction, direction)
                parameter.addcdiv_(direction, state["sum"].sqrt().add_(group["eps"]), value=-rate)
