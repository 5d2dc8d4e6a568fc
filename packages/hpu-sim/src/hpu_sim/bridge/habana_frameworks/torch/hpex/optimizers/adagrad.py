"""Adagrad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._base import FusedOptimizer, check, parameters_with_gradients  # Relative, so that type checkers find it too.

if TYPE_CHECKING:
    from collections.abc import Iterable


class FusedAdagrad(FusedOptimizer):
    """Adagrad as torch's.

    Args:
        params: Parameters or groups of them.
        lr: Step size.
        lr_decay: How fast the step size falls with the number of steps.
        weight_decay: Share of a parameter that is added to its gradient.
        initial_accumulator_value: What the sums of squares begin with.
        eps: Added to the root of the sum of squares.

    Raises:
        ValueError: If a value is out of its range.
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
        for name, value in (("lr", lr), ("lr_decay", lr_decay), ("weight_decay", weight_decay), ("eps", eps)):
            check(name, value)
        check("initial_accumulator_value", initial_accumulator_value)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
        }
        super().__init__(params, defaults)

    def _step(self) -> None:
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            size = group["lr"] / (1 + (group["step"] - 1) * group["lr_decay"])
            for parameter, gradient in parameters_with_gradients(group):
                if group["weight_decay"]:
                    gradient = gradient.add(parameter, alpha=group["weight_decay"])  # noqa: PLW2901 - the caller's stays
                state = self.state[parameter]
                if "sum" not in state:
                    state["sum"] = torch.full_like(parameter, group["initial_accumulator_value"])
                state["sum"].addcmul_(gradient, gradient)
                parameter.addcdiv_(gradient, state["sum"].sqrt().add_(group["eps"]), value=-size)
