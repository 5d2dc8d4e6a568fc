"""The scale of one tensor: measured in one step, used in the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from habana_frameworks.torch.hpex.experimental._te_impl.recipe import DelayedScaling


class Scaling:
    """Scale and history of a tensor.

    Args:
        largest: The format's largest number.
        dtype: The format.
        device: Where the tensor lies.

    Attributes:
        scale: What numbers are multiplied by before they are rounded: one element.
        history: Largest absolute numbers of the steps before, the last one first.
    """

    def __init__(self, largest: float, dtype: torch.dtype, device: torch.device) -> None:
        self.largest = largest
        self.dtype = dtype
        self.scale = torch.ones((), device=device)
        self.history = torch.zeros(1, device=device)

    def follow(self, tensor: torch.Tensor) -> None:
        """Move to where a tensor lies: a state is loaded into modules that are still on the host, too."""
        self.scale, self.history = self.scale.to(tensor.device), self.history.to(tensor.device)

    def measure(self, tensor: torch.Tensor, recipe: DelayedScaling) -> None:
        """Remember the largest number of a tensor."""
        amax = tensor.detach().abs().max().float().reshape(1)
        self.history = torch.cat([amax, self.history])[: recipe.amax_history_len]

    def rescale(self, recipe: DelayedScaling) -> None:
        """Set the scale by the history; it stays where the largest number is zero or no number."""
        if callable(recipe.amax_compute_algo):
            amax = recipe.amax_compute_algo(self.history)
        else:
            amax = self.history.max() if recipe.amax_compute_algo == "max" else self.history[0]
        if recipe.scaling_factor_compute_algo is not None:
            self.scale = recipe.scaling_factor_compute_algo(amax, self.scale, self.largest, recipe)
            return
        scale = self.largest / amax / 2**recipe.margin
        self.scale = torch.where((amax > 0) & torch.isfinite(amax), scale, self.scale)

    def round(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor as float8 holds it, in the tensor's own dtype."""
        scaled = (tensor.float() * self.scale).clamp(-self.largest, self.largest)
        return (scaled.to(self.dtype).float() / self.scale).to(tensor.dtype)
