"""Step of AdamW, and the operator of ``torch.ops.hpu`` by which DeepSpeed's own AdamW takes it on ``hpu``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.device.events import one_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

# Holds the registration.
_library = torch.library.Library("hpu", "DEF")
_LISTS = "Tensor[] gradient_vec, Tensor(a!)[] weight_vec, Tensor(b!)[] exp_avg_vec, Tensor(c!)[] exp_avg_sq_vec"


def define_operator() -> None:
    """Define the operator in torch. Weight decay is a number in lazy mode, and a tensor with a flag in eager mode."""
    decay = "float weight_decay" if is_lazy() else "Tensor weight_decay, bool has_weight_decay"
    numbers = f"Tensor neg_step_t, float beta1, float beta2, float epsilon, {decay}"
    _library.define(f"optimizer_adamw({_LISTS}, {numbers}) -> ()")
    _library.impl("optimizer_adamw", _optimizer_adamw, "HPU")


@torch.no_grad()
def _optimizer_adamw(  # noqa: PLR0913, PLR0917 - the bridge's signature
    gradients: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    first_moments: Sequence[torch.Tensor],
    second_moments: Sequence[torch.Tensor],
    negative_step: torch.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    decay: float | torch.Tensor,
    has_decay: bool = True,
) -> None:
    with one_kernel():
        for gradient, weight, first, second in zip(gradients, weights, first_moments, second_moments, strict=True):
            update(weight, gradient, first, second, beta1, beta2, epsilon, decay if has_decay else 1.0, negative_step)


def update(  # noqa: PLR0913, PLR0917 - one argument for each symbol of the formula
    weight: torch.Tensor,
    gradient: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    decay: float | torch.Tensor,
    negative_step: float | torch.Tensor,
) -> None:
    """Update a weight and its moments, with a factor of the weight for its decay."""
    value = gradient.to(first.dtype)
    first.mul_(beta1).add_(value, alpha=1 - beta1)
    second.mul_(beta2).addcmul_(value, value, value=1 - beta2)
    if isinstance(decay, torch.Tensor) or decay != 1:
        weight.mul_(decay)
    weight.add_((first / (second.sqrt() + epsilon) * negative_step).to(weight.dtype))
