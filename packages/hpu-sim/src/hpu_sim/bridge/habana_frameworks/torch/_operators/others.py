"""Operators of one formula each: indexing, fast elementary functions, CTC loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

_REDUCTIONS: Final = ("none", "mean", "sum")


def _plain_index(self: torch.Tensor, indices: Sequence[torch.Tensor]) -> torch.Tensor:
    return self[tuple(indices)]


def _ctc_loss(  # noqa: PLR0913, PLR0917 - the bridge's signature
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = (input_lengths, target_lengths)
    loss = functional.ctc_loss(log_probs, targets, *lengths, blank, _REDUCTIONS[reduction], zero_infinity)
    _, log_alpha = torch._ctc_loss(log_probs, targets, *lengths, blank, zero_infinity)  # noqa: SLF001 - no public API
    return loss, log_alpha


def _ctc_loss_backward(  # noqa: PLR0913, PLR0917 - the bridge's signature
    grad: torch.Tensor,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    neg_log_likelihood: torch.Tensor,
    log_alpha: torch.Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> torch.Tensor:
    # Recomputed: the loss is reduced, and torch's own backward operator needs that of each sequence.
    del neg_log_likelihood, log_alpha
    with torch.enable_grad():
        leaf = log_probs.detach().requires_grad_()
        lengths = (input_lengths, target_lengths)
        loss = functional.ctc_loss(leaf, targets, *lengths, blank, _REDUCTIONS[reduction], zero_infinity)
        (gradient,) = torch.autograd.grad(loss, leaf, grad)
    return gradient


def _instance_norm(
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dims = list(range(2, input.dim()))
    wide = input.float()
    mean = wide.mean(dims)
    inverse_std = torch.rsqrt(wide.var(dims, unbiased=False) + eps)
    return functional.instance_norm(input, weight=weight, bias=bias, eps=eps), mean, inverse_std


_TARGETS: Final = "Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths"
_OPTIONS: Final = "int blank, int reduction, bool zero_infinity"

#: Schemas and functions.
OPERATORS: Final = (
    ("plain_index(Tensor self, Tensor[] indices) -> Tensor", _plain_index),
    ("exp_fast_math(Tensor self) -> Tensor", torch.exp),
    ("sqrt_fast_math(Tensor self) -> Tensor", torch.sqrt),
    ("rsqrt_fast_math(Tensor self) -> Tensor", torch.rsqrt),
    (f"ctc_loss_custom({_TARGETS}, {_OPTIONS}) -> (Tensor, Tensor)", _ctc_loss),
    (
        (
            f"ctc_loss_custom_backward(Tensor grad, {_TARGETS}, Tensor neg_log_likelihood, Tensor log_alpha, "
            f"{_OPTIONS}) -> Tensor"
        ),
        _ctc_loss_backward,
    ),
)

#: Schemas and functions of lazy mode.
LAZY_OPERATORS: Final = (
    ("instance_norm(Tensor input, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor, Tensor)", _instance_norm),
)
