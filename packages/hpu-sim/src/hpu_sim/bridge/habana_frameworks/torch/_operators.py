"""``torch.ops.hpu``: operators of the card's own that DeepSpeed calls by name."""

from __future__ import annotations

from typing import Final

import torch

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.runtime import active_config

_LISTS: Final = "Tensor[] grads, Tensor(a!)[] weights, Tensor(b!)[] exp_avg, Tensor(c!)[] exp_avg_sq"
_SCALARS: Final = "Tensor neg_step, float beta1, float beta2, float epsilon"

#: Largest number of float8_e4m3fn: Gaudi 2 has no more exponents than IEEE gives, and so none above 240.
E4M3_MAX: Final = {"GAUDI2": 240.0, "GAUDI3": 448.0}

# Registrations last as long as this object.
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
    """Take a step of AdamW in place.

    Args:
        grads: Gradients.
        weights: Parameters.
        exp_avg: Means of the gradients.
        exp_avg_sq: Means of their squares.
        neg_step: One element: minus the step size, corrected for the bias of both means.
        beta1: Share of the old mean.
        beta2: Share of the old mean of squares.
        epsilon: Added to the root of the mean of squares.
        modified_wd: What the parameters are multiplied by first.
        has_wd: Whether they are.
    """
    for gradient, weight, mean, square in zip(grads, weights, exp_avg, exp_avg_sq, strict=True):
        value = gradient.to(mean.dtype)
        mean.mul_(beta1).add_(value, alpha=1 - beta1)
        square.mul_(beta2).addcmul_(value, value, value=1 - beta2)
        if has_wd:
            weight.mul_(modified_wd)
        weight.add_((mean / (square.sqrt() + epsilon) * neg_step).to(weight.dtype))


def cast_to_fp8_v2(
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    scale: torch.Tensor | None = None,
    stochastic_rounding: bool = False,
    is_amax: bool = False,
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the input times the scale in float8, cut off at the largest number, and the largest of the input.

    Rounding is to the nearest, also where a card would round at random.
    """
    del stochastic_rounding
    target = torch.float8_e5m2 if dtype is None else dtype
    largest = torch.finfo(target).max
    if target == torch.float8_e4m3fn:
        largest = E4M3_MAX.get(active_config().generation, largest)
    scaled = input if scale is None else input * scale
    amax = input.abs().max() if is_amax else input.new_zeros((), dtype=torch.float32)
    return scaled.clamp(-largest, largest).to(target), amax.to(torch.float32)


def cast_from_fp8(
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    scale: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """Return a float8 tensor in a wider dtype, times the scale."""
    wide = input.to(out_dtype)
    return wide if scale is None else (wide * scale).to(out_dtype)


def define_operators() -> None:
    """Make the operators known to torch; the schema of AdamW depends on the mode."""
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
