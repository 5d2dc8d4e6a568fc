"""Operators of attention."""

from __future__ import annotations

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from torch.nn import functional

import hpu_sim

_SCALE = 0.3


def _heads(*, requires_grad: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(7)
    return [torch.randn(2, 2, 5, 4).to("hpu").requires_grad_(requires_grad) for _ in range(3)]


def _mask(kind: str) -> torch.Tensor | None:
    if kind == "added":
        return torch.zeros(5, 5, device="hpu").masked_fill(torch.eye(5, dtype=torch.bool, device="hpu"), -1e4)
    return ~torch.eye(5, dtype=torch.bool, device="hpu") if kind == "bool" else None


def _attention(heads: list[torch.Tensor], mask: torch.Tensor | None, *, is_causal: bool) -> torch.Tensor:
    query, key, value = heads
    return functional.scaled_dot_product_attention(
        query * _SCALE * query.shape[-1] ** 0.5, key, value, attn_mask=mask, is_causal=is_causal
    )


_CASES = pytest.mark.parametrize(
    ("kind", "is_causal"), [("none", False), ("none", True), ("added", False), ("bool", False)]
)


@_CASES
def test_attention_keeps_what_recomputes_its_probabilities(kind: str, is_causal: bool) -> None:
    """Forward keeps the maximum and the reciprocal sum of each row."""
    query, key, value = heads = _heads()
    mask = _mask(kind)

    output, maximum, reciprocal, _ = torch.ops.hpu.sdpa_recomp_fwd(
        *heads, mask, 0.0, _SCALE, is_causal, True, "None", None, "None"
    )

    torch.testing.assert_close(output, _attention(heads, mask, is_causal=is_causal))
    if kind == "none" and not is_causal:
        probabilities = (query @ key.mT * _SCALE - maximum).exp() * reciprocal
        torch.testing.assert_close(probabilities @ value, output)


def test_heads_of_the_queries_may_share_keys_and_values() -> None:
    """Results and gradients are those of repeated keys and values."""
    leaves = [
        head[:, :heads].detach().clone().requires_grad_() for head, heads in zip(_heads(), (2, 1, 1), strict=True)
    ]
    expected = _attention([leaves[0], *(leaf.expand(-1, 2, -1, -1) for leaf in leaves[1:])], None, is_causal=True)
    gradients = torch.autograd.grad(expected, leaves, torch.ones_like(expected))
    plain = [leaf.detach() for leaf in leaves]

    output, *_ = torch.ops.hpu.sdpa_recomp_fwd(*plain, None, 0.0, _SCALE, True, True, "None", None, "None")
    fused = FusedSDPA.apply(*leaves, None, 0.0, True, _SCALE)

    for each in (output, fused):
        torch.testing.assert_close(each, expected, check_stride=False)
    torch.testing.assert_close(torch.autograd.grad(fused, leaves, torch.ones_like(fused)), gradients)


def test_dropout_of_attention_keeps_the_mean() -> None:
    """A probability is dropped or doubled; the host reads nothing, and inference keeps no statistics."""
    before = hpu_sim.stats()["host_syncs"]
    query, key, _ = _heads()
    ones = torch.eye(5, device="hpu").expand(2, 2, 5, 5)

    weights, *statistics = torch.ops.hpu.sdpa_recomp_fwd(
        query, key, ones, None, 0.5, _SCALE, False, False, "None", None, "None"
    )

    assert hpu_sim.stats()["host_syncs"] == before
    assert [each.numel() for each in statistics] == [0, 0, 0]
    factors = weights / (query @ key.mT * _SCALE).softmax(-1)
    torch.testing.assert_close(factors.round(), factors)
    assert set(factors.round().unique().tolist()) == {0, 2}
