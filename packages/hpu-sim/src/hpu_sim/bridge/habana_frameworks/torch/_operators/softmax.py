"""Variants of softmax, and RMS normalization."""

from __future__ import annotations

from typing import Any, Final

import torch


def _custom_softmax(*, input: torch.Tensor, **_: Any) -> torch.Tensor:  # noqa: A002 - the bridge's name
    return input.softmax(-1)


def _causal_logits(self: torch.Tensor, inv_scale_attn: float) -> torch.Tensor:
    is_later = torch.ones(self.shape[-2:], dtype=torch.bool, device=self.device).triu(1)
    return (self.float() * inv_scale_attn).masked_fill(is_later, -torch.inf)


def _scaled_triangular_softmax(
    self: torch.Tensor,
    inv_scale_attn: float,
    exp_sum_recpr: torch.Tensor | None = None,
    max: torch.Tensor | None = None,  # noqa: A002 - the bridge's name
) -> torch.Tensor:
    logits = _causal_logits(self, inv_scale_attn)
    if exp_sum_recpr is None or max is None:
        return logits.softmax(-1).to(self.dtype)
    return ((logits - max.float()).exp() * exp_sum_recpr.float()).to(self.dtype)


def _scaled_triangular_softmax_retain(
    self: torch.Tensor, inv_scale_attn: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logits = _causal_logits(self, inv_scale_attn)
    maximum = logits.amax(-1, keepdim=True)
    reciprocal = (logits - maximum).exp().sum(-1, keepdim=True).reciprocal()
    return logits.softmax(-1).to(self.dtype), reciprocal, maximum.to(self.dtype)


def _scaled_masked_softmax(input: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:  # noqa: A002 - as above
    return (input.float() * scale + mask.float()).softmax(-1).to(input.dtype)


def _ragged_softmax(self: torch.Tensor, dim: int, half_to_float: bool, valid_count: torch.Tensor) -> torch.Tensor:
    position = torch.arange(self.shape[dim], device=self.device)
    shape = [1] * self.dim()
    shape[dim] = -1
    count = valid_count.reshape(*valid_count.shape, *[1] * (self.dim() - valid_count.dim()))
    probabilities = self.float().masked_fill(position.reshape(shape) >= count, -torch.inf).softmax(dim)
    return probabilities if half_to_float else probabilities.to(self.dtype)


def _rms_norm(data_in: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    wide = data_in.float()
    inverse_rms = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * inverse_rms * gamma.float()).to(data_in.dtype), inverse_rms


def _rms_norm_backward(
    *, grad_in: torch.Tensor, data_in: torch.Tensor, gamma: torch.Tensor, inverse_rms: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    grad, wide, inverse = grad_in.float(), data_in.float(), inverse_rms.float()
    normalized = wide * inverse
    scaled = grad * gamma.float()
    grad_data = inverse * (scaled - normalized * (scaled * normalized).mean(-1, keepdim=True))
    grad_gamma = (grad * normalized).reshape(-1, gamma.shape[-1]).sum(0)
    return grad_data.to(data_in.dtype), grad_gamma.to(gamma.dtype)


_BACKWARD: Final = "Tensor grad_in, Tensor data_in, Tensor gamma, Tensor inverse_rms, bool use_stages, int bwd_mode"

#: Schemas and functions.
OPERATORS: Final = (
    ("custom_softmax(Tensor input, int flavor) -> Tensor", _custom_softmax),
    (
        (
            "scaled_triangular_softmax(Tensor self, float inv_scale_attn, Tensor? exp_sum_recpr=None, "
            "Tensor? max=None) -> Tensor"
        ),
        _scaled_triangular_softmax,
    ),
    (
        "scaled_triangular_softmax_retain(Tensor self, float inv_scale_attn) -> (Tensor, Tensor, Tensor)",
        _scaled_triangular_softmax_retain,
    ),
    ("scaled_masked_softmax(Tensor input, Tensor mask, float scale) -> Tensor", _scaled_masked_softmax),
    ("ragged_softmax(Tensor self, int dim, bool half_to_float, Tensor valid_count) -> Tensor", _ragged_softmax),
    *(
        (f"{name}(Tensor data_in, Tensor gamma, float epsilon) -> (Tensor, Tensor)", _rms_norm)
        for name in ("rms_norm", "rms_norm_fast")
    ),
    *(
        (f"{name}({_BACKWARD}) -> (Tensor, Tensor)", _rms_norm_backward)
        for name in ("rms_norm_backward", "rms_norm_fast_backward")
    ),
)
