"""LARS as a wrapper of another optimizer. Paper: You, Gitman and Ginsburg, 2017."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._base import parameters_with_gradients  # Relative, for type checkers.

if TYPE_CHECKING:
    from collections.abc import Sequence


class FusedLars(torch.optim.Optimizer):
    """Wrapper that scales each gradient by the ratio of its parameter's norm to its own before the step.

    Args:
        optimizer: The wrapped optimizer.
        skip_mask: One number per parameter group; 0 excludes its parameters.
        eeta: Trust coefficient, the factor of the ratio.
        eps: Added to the norm of the gradient.

    Raises:
        ValueError: If the mask does not have one number per parameter group.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, skip_mask: Sequence[int], eeta: float = 0.001, eps: float = 1e-8
    ) -> None:
        groups = len(optimizer.param_groups)
        if len(skip_mask) != groups:
            raise ValueError(
                f"`skip_mask` must have one number for each of the {groups} parameter groups, got {len(skip_mask)}"
            )
        # Without torch's __init__: groups and state are those of the wrapped optimizer.
        self.optim = optimizer
        self.skip_mask = list(skip_mask)
        self.eeta = eeta
        self.eps = eps

    def __getattr__(self, name: str) -> Any:
        if name == "optim":  # Not set yet during unpickling.
            raise AttributeError(name)
        return getattr(self.optim, name)

    def __repr__(self) -> str:
        return f"FusedLars({self.optim!r})"

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrapped optimizer."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the wrapped optimizer."""
        self.optim.load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clear the gradients."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, which are excluded from scaling."""
        self.optim.add_param_group(param_group)
        self.skip_mask.append(0)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override] # The bridge's takes no closure.
        """Scale the gradients, which includes weight decay, and take a step of the wrapped optimizer."""
        decays = [group.get("weight_decay", 0) for group in self.optim.param_groups]
        for group, decay, is_included in zip(self.optim.param_groups, decays, self.skip_mask, strict=True):
            group["weight_decay"] = 0
            for parameter, gradient in parameters_with_gradients(group) if is_included else ():
                self._scale(parameter, gradient, decay)
        self.optim.step()
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = decay

    def _scale(self, parameter: torch.Tensor, gradient: torch.Tensor, decay: float) -> None:
        weight_norm, grad_norm = parameter.norm(), gradient.norm()
        ratio = self.eeta * weight_norm / (grad_norm + decay * weight_norm + self.eps)
        # A zero norm has no ratio, and the gradient is not scaled.
        is_valid = (weight_norm > 0) & (grad_norm > 0)
        gradient.add_(parameter, alpha=decay).mul_(torch.where(is_valid, ratio, torch.ones_like(ratio)))
