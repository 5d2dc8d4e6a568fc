"""Operators of one formula each: indexing, fast elementary functions, CTC loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_REDUCTIONS: Final = ("none", "mean", "sum")


def _method(name: str) -> Callable[..., Any]:
    return lambda self: getattr(self, name)()


def _plain_index(self: torch.Tensor, indices: Sequence[torch.Tensor]) -> torch.Tensor:
    return self[tuple(indices)]


def _reduced_ctc_loss(log_probs: torch.Tensor, arguments: Mapping[str, Any]) -> torch.Tensor:
    return functional.ctc_loss(
        log_probs,
        arguments["targets"],
        arguments["input_lengths"],
        arguments["target_lengths"],
        arguments["blank"],
        _REDUCTIONS[arguments["reduction"]],
        arguments["zero_infinity"],
    )


def _ctc_loss(*, log_probs: torch.Tensor, **arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    names = ("targets", "input_lengths", "target_lengths", "blank", "zero_infinity")
    _, log_alpha = torch._ctc_loss(log_probs, *(arguments[name] for name in names))  # noqa: SLF001 - no public API
    return _reduced_ctc_loss(log_probs, arguments), log_alpha


def _ctc_loss_backward(*, grad: torch.Tensor, log_probs: torch.Tensor, **arguments: Any) -> torch.Tensor:
    # Recomputed: the loss is reduced, and torch's own backward operator needs that of each sequence.
    with torch.enable_grad():
        leaf = log_probs.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(_reduced_ctc_loss(leaf, arguments), leaf, grad)
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
    *((f"{name}_fast_math(Tensor self) -> Tensor", _method(name)) for name in ("exp", "sqrt", "rsqrt")),
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
