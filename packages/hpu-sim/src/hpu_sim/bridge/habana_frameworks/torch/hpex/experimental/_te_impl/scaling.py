"""Delayed scaling of one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from hpu_sim.device.events import as_one_kernel

if TYPE_CHECKING:
    from habana_frameworks.torch.hpex.experimental._te_impl.recipe import DelayedScaling


class Float8(NamedTuple):
    """Tensor in float8, its scale, and the dtype that it had."""

    data: torch.Tensor
    scale: torch.Tensor
    dtype: torch.dtype

    def restore(self) -> torch.Tensor:
        """Return the rounded tensor in the dtype that it had."""
        return (self.data.float() / self.scale).to(self.dtype)


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

    def _update_amax(self, tensor: torch.Tensor, recipe: DelayedScaling) -> None:
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

    @as_one_kernel
    def quantize(self, tensor: torch.Tensor, recipe: DelayedScaling | None) -> Float8:
        """Return a tensor in float8; with a recipe, add its absolute maximum to the history, as a card's cast does."""
        if recipe is not None:
            self._update_amax(tensor, recipe)
        scaled = (tensor.float() * self.scale).clamp(-self.fp8_max, self.fp8_max)
        return Float8(scaled.to(self.dtype), self.scale, tensor.dtype)
