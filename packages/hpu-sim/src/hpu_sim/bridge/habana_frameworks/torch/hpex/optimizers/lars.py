"""Layer-wise adaptive rates (LARS), around another optimizer. Paper: You, Gitman and Ginsburg, 2017."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._base import parameters_with_gradients  # Relative, so that type checkers find it too.

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class FusedLars(torch.optim.Optimizer):
    """Scales each gradient by the ratio of its parameter's norm to its own, then lets an optimizer step.

    Args:
        optimizer: The optimizer that steps.
        skip_mask: One number per parameter in the optimizer's order: 0 leaves its gradient as it is.
        eeta: Factor of the ratio.
        eps: Added to the norm of the gradient.

    Raises:
        ValueError: If the mask has not one number per parameter.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, skip_mask: Sequence[int], eeta: float = 0.001, eps: float = 1e-8
    ) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if len(skip_mask) != len(parameters):
            raise ValueError(
                f"`skip_mask` must have one number for each of the {len(parameters)} parameters, got {len(skip_mask)}"
            )
        # Not torch's __init__: groups and state are those of the optimizer inside.
        self.optim = optimizer
        self.skip_mask = list(skip_mask)
        self.eeta = eeta
        self.eps = eps

    def __getattr__(self, name: str) -> Any:
        if name == "optim":  # Not set yet, as while it is being unpickled.
            raise AttributeError(name)
        return getattr(self.optim, name)

    def __repr__(self) -> str:
        return f"FusedLars({self.optim!r})"

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer inside."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the optimizer inside."""
        self.optim.load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, whose gradients are left as they are."""
        self.optim.add_param_group(param_group)
        self.skip_mask += [0] * len(self.optim.param_groups[-1]["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Scale the gradients and take a step of the optimizer inside, which adds no weight decay of its own."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        decays = [group.get("weight_decay", 0) for group in self.optim.param_groups]
        applies = iter(self.skip_mask)
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            masked = {id(parameter): next(applies) for parameter in group["params"]}
            group["weight_decay"] = 0
            for parameter, gradient in parameters_with_gradients(group):
                self._scale(parameter, gradient, decay, applied=bool(masked[id(parameter)]))
        self.optim.step()
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = decay
        return loss

    def _scale(self, parameter: torch.Tensor, gradient: torch.Tensor, decay: float, *, applied: bool) -> None:
        if not applied:
            return
        weight, slope = parameter.norm(), gradient.norm()
        ratio = self.eeta * weight / (slope + decay * weight + self.eps)
        # Where either norm is zero there is no ratio, and the gradient stays.
        usable = (weight > 0) & (slope > 0)
        gradient.add_(parameter, alpha=decay).mul_(torch.where(usable, ratio, torch.ones_like(ratio)))
