"""Delayed scaling of one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from habana_frameworks.torch.hpex.experimental._te_impl.recipe import DelayedScaling


class Scaling:
    """Scale and amax history of a tensor.

    Attributes:
        scale: Factor of the numbers before they are rounded, a tensor of one element.
        next_scale: Factor from the next forward pass on. A recomputed forward pass still needs `scale`.
        amax_history: Absolute maxima of earlier steps, latest first.
    """

    def __init__(self, fp8_max: float, dtype: torch.dtype, device: torch.device) -> None:
        self.fp8_max = fp8_max
        self.dtype = dtype
        self.scale = self.next_scale = torch.ones((), device=device)
        self.amax_history = torch.zeros(1, device=device)

    def move_to(self, device: torch.device) -> None:
        """Move to a device. A module may have loaded its state before it moved."""
        self.scale, self.next_scale = self.scale.to(device), self.next_scale.to(device)
        self.amax_history = self.amax_history.to(device)

    def update_amax(self, tensor: torch.Tensor, recipe: DelayedScaling) -> None:
        """Add the absolute maximum of a tensor to the history."""
        amax = tensor.detach().abs().max().float().reshape(1)
        self.amax_history = torch.cat([amax, self.amax_history])[: recipe.amax_history_len]

    def update_scale(self, recipe: DelayedScaling) -> None:
        """Compute the next scale from the history; keep the scale if the maximum is zero or not finite."""
        if callable(recipe.amax_compute_algo):
            amax = recipe.amax_compute_algo(self.amax_history)
        else:
            amax = self.amax_history.max() if recipe.amax_compute_algo == "max" else self.amax_history[0]
        if recipe.scaling_factor_compute_algo is not None:
            self.next_scale = recipe.scaling_factor_compute_algo(amax, self.scale, self.fp8_max, recipe)
            return
        scale = self.fp8_max / amax / 2**recipe.margin
        self.next_scale = torch.where((amax > 0) & torch.isfinite(amax), scale, self.scale)

    def advance(self) -> None:
        """Use the scale of the last measurement."""
        self.scale = self.next_scale

    def fake_quantize(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor rounded to float8, in its own dtype."""
        scaled = (tensor.float() * self.scale).clamp(-self.fp8_max, self.fp8_max)
        return (scaled.to(self.dtype).float() / self.scale).to(tensor.dtype)
