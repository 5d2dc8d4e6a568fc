"""Operators of ``torch.ops.hpu`` that DeepSpeed calls."""

from __future__ import annotations

from typing import Final

import torch

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.runtime import active_config

_LISTS: Final = "Tensor[] grads, Tensor(a!)[] weights, Tensor(b!)[] exp_avg, Tensor(c!)[] exp_avg_sq"
_SCALARS: Final = "Tensor neg_step, float beta1, float beta2, float epsilon"

#: Largest float8_e4m3fn number. Gaudi 2 reserves the top exponent as IEEE 754 does, so its numbers end at 240.
E4M3_MAX: Final = {"GAUDI2": 240.0, "GAUDI3": 448.0}

# Holds the registrations.
_library = torch.library.Library("hpu", "DEF")


def optimizer_adamw(  # noqa: PLR0913, PLR0917 - the bridge's signature
    grads: list[torch.Tensor],
    weights: list[torch.Tensor],
    exp_avg: list[torch.Tensor],
    exp_avg_sq: list[torch.Tensor],
    neg_step: torch.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    modified_wd: float | torch.Tensor,
    has_wd: bool = True,
) -> None:
    """Take an AdamW step in place.

    Args:
        grads: Gradients.
        weights: Parameters.
        exp_avg: First moments.
        exp_avg_sq: Second moments.
        neg_step: Negative step size with the bias correction of both moments, a tensor of one element.
        beta1: Decay rate of the first moments.
        beta2: Decay rate of the second moments.
        epsilon: Added to the root of the second moments.
        modified_wd: Factor of the parameters before the update.
        has_wd: Whether to multiply by ``modified_wd``.
    """
    for grad, weight, moment1, moment2 in zip(grads, weights, exp_avg, exp_avg_sq, strict=True):
        value = grad.to(moment1.dtype)
        moment1.mul_(beta1).add_(value, alpha=1 - beta1)
        moment2.mul_(beta2).addcmul_(value, value, value=1 - beta2)
        if has_wd:
            weight.mul_(modified_wd)
        weight.add_((moment1 / (moment2.sqrt() + epsilon) * neg_step).to(weight.dtype))


def cast_to_fp8_v2(
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    scale: torch.Tensor | None = None,
    stochastic_rounding: bool = False,
    is_amax: bool = False,
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scaled input in float8, clamped to its range, and the absolute maximum of the input.

    Numbers are rounded to nearest even where a card would round stochastically.
    """
    del stochastic_rounding
    target = torch.float8_e5m2 if dtype is None else dtype
    fp8_max = torch.finfo(target).max
    if target == torch.float8_e4m3fn:
        fp8_max = E4M3_MAX.get(active_config().generation, fp8_max)
    scaled = input if scale is None else input * scale
    amax = input.abs().max() if is_amax else input.new_zeros((), dtype=torch.float32)
    return scaled.clamp(-fp8_max, fp8_max).to(target), amax.to(torch.float32)


def cast_from_fp8(
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    scale: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """Return a float8 tensor in a wider dtype, multiplied by the scale."""
    wide = input.to(out_dtype)
    return wide if scale is None else (wide * scale).to(out_dtype)


def define_operators() -> None:
    """Define the operators in torch. The schema of AdamW depends on the mode."""
    decay = "float modified_wd" if is_lazy() else "Tensor modified_wd, bool has_wd"
    _library.define(f"optimizer_adamw({_LISTS}, {_SCALARS}, {decay}) -> ()")
    _library.impl("optimizer_adamw", optimizer_adamw, "HPU")
    # torch has float8 from 2.1 on.
    if hasattr(torch, "float8_e5m2"):
        _library.define(
            "cast_to_fp8_v2(Tensor input, Tensor? scale=None, bool stochastic_rounding=False, bool is_amax=False, "
            "ScalarType? dtype=None) -> (Tensor, Tensor)"
        )
        _library.impl("cast_to_fp8_v2", cast_to_fp8_v2, "HPU")
        _library.define("cast_from_fp8(Tensor input, Tensor? scale, ScalarType out_dtype) -> Tensor")
        _library.impl("cast_from_fp8", cast_from_fp8, "HPU")
