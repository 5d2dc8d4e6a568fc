"""Operators of attention."""

from __future__ import annotations

from typing import Any

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
@pytest.mark.parametrize("name", ["sdpa_fwd", "sdpa_fwd_dropout", "sdpa_fwd_non_dropout"])
def test_attention_and_its_backward(name: str, kind: str, is_causal: bool) -> None:
    """Forward keeps the probabilities, which backward takes."""
    heads, mask = _heads(requires_grad=True), _mask(kind)
    expected = _attention(heads, mask, is_causal=is_causal)
    gradient = torch.randn(expected.shape).to("hpu")
    gradients = torch.autograd.grad(expected, heads, gradient)
    plain = [head.detach() for head in heads]

    output, probabilities, dropout = getattr(torch.ops.hpu, name)(
        *plain, mask, 0.0, _SCALE, is_causal, "None", None, "None"
    )
    backward = torch.ops.hpu.sdpa_bwd(gradient, *plain, probabilities, dropout, is_causal, 0.0, _SCALE, output)

    torch.testing.assert_close(output, expected.detach())
    torch.testing.assert_close(list(backward), list(gradients))


@_CASES
@pytest.mark.parametrize("name", ["sdpa_recomp_fwd", "sdpa_recomp_fwd_dropout", "sdpa_recomp_fwd_non_dropout"])
def test_recomputed_attention_and_its_backward(name: str, kind: str, is_causal: bool) -> None:
    """Forward keeps the maximum and the reciprocal sum of each row."""
    heads, mask = _heads(requires_grad=True), _mask(kind)
    expected = _attention(heads, mask, is_causal=is_causal)
    gradient = torch.randn(expected.shape).to("hpu")
    gradients = torch.autograd.grad(expected, heads, gradient)
    plain = [head.detach() for head in heads]

    output, *statistics = getattr(torch.ops.hpu, name)(*plain, mask, 0.0, _SCALE, is_causal, True, "None", None, "None")
    backward = torch.ops.hpu.sdpa_recomp_bwd(
        gradient, *plain, mask, *statistics, is_causal, 0.0, _SCALE, "None", output
    )

    torch.testing.assert_close(output, expected.detach())
    torch.testing.assert_close(list(backward), list(gradients))


def test_heads_of_the_queries_may_share_keys_and_values() -> None:
    """Results and gradients are those of repeated keys and values, for both kinds of kernels."""
    query, key, value = (head[:, :heads].detach() for head, heads in zip(_heads(), (2, 1, 1), strict=True))
    leaves = [head.clone().requires_grad_() for head in (query, key, value)]
    expected = _attention([leaves[0], *(leaf.expand(-1, 2, -1, -1) for leaf in leaves[1:])], None, is_causal=True)
    gradients = torch.autograd.grad(expected, leaves, torch.ones_like(expected))
    options = (None, 0.0, _SCALE, True)

    kept = torch.ops.hpu.sdpa_fwd(query, key, value, *options, "None", None, "None")
    recomputed = torch.ops.hpu.sdpa_recomp_fwd(query, key, value, *options, True, "None", None, "None")
    grad = torch.ones_like(query)
    backward = torch.ops.hpu.sdpa_bwd(grad, query, key, value, kept[1], None, True, 0.0, _SCALE, kept[0])
    recomputed_backward = torch.ops.hpu.sdpa_recomp_bwd(
        grad, query, key, value, None, *recomputed[1:], True, 0.0, _SCALE, "None", recomputed[0]
    )
    fused = FusedSDPA.apply(*leaves, None, 0.0, True, _SCALE)

    for output in (kept[0], recomputed[0], fused):
        torch.testing.assert_close(output, expected, check_stride=False)
    torch.testing.assert_close(backward, gradients)
    torch.testing.assert_close(recomputed_backward, gradients)
    torch.testing.assert_close(torch.autograd.grad(fused, leaves, grad), gradients)


def test_inference_keeps_no_statistics() -> None:
    arguments: list[Any] = [None, 0.0, _SCALE, False, False, "None", None, "None"]

    _, *statistics = torch.ops.hpu.sdpa_recomp_fwd(*_heads(), *arguments)

    assert [each.numel() for each in statistics] == [0, 0, 0]


def test_dropout_of_attention_is_drawn_from_the_seed() -> None:
    """Backward draws the same factors as forward. The host does not read the seed."""
    before = hpu_sim.stats()["host_syncs"]
    heads, seed = _heads(), torch.tensor([5], dtype=torch.int32, device="hpu")
    options: list[Any] = [None, 0.5, _SCALE, False]
    gradient = torch.randn(2, 2, 5, 4).to("hpu")

    output, probabilities, dropout = torch.ops.hpu.sdpa_fwd_dropout_seed(seed, *heads, *options, "None", None, "None")
    again, *statistics = torch.ops.hpu.sdpa_recomp_fwd_dropout_seed(seed, *heads, *options, True, "None", None, "None")
    backward = torch.ops.hpu.sdpa_bwd(gradient, *heads, probabilities, dropout, False, 0.5, _SCALE, output)
    recomputed = torch.ops.hpu.sdpa_recomp_bwd(gradient, *heads, None, *statistics, False, 0.5, _SCALE, "None", again)

    assert hpu_sim.stats()["host_syncs"] == before
    assert set(dropout.unique().tolist()) == {0, 2}
    torch.testing.assert_close(output, (probabilities * dropout) @ heads[2])
    torch.testing.assert_close(again, output)
    torch.testing.assert_close(list(recomputed), list(backward))


_SCALES: Any = (0.5, 2.0, 0.25, 64.0, None, 1 / 64)


@pytest.mark.needs_torch("2.1", "float8")
def test_float8_attention_multiplies_by_its_scales() -> None:
    """Probabilities pass through float8, so the result is that of exact ones within its precision."""
    heads = [head.to(torch.float8_e4m3fn) for head in _heads()]
    scales = [None if each is None else torch.tensor(each, device="hpu") for each in _SCALES]
    query, key, value = (head.float() * by for head, by in zip(heads, _SCALES[:3], strict=True))
    probabilities = (query @ key.mT * _SCALE).softmax(-1)

    output, kept, _, amax = torch.ops.hpu.fp8_sdpa_fwd(
        *heads, None, 0.0, _SCALE, False, "None", *scales, True, None, "None"
    )

    assert (output.dtype, kept.dtype) == (torch.bfloat16, torch.float8_e4m3fn)
    torch.testing.assert_close(output.float(), probabilities @ value, rtol=0.1, atol=0.01)
    torch.testing.assert_close(amax, probabilities.max())


@pytest.mark.needs_torch("2.1", "float8")
@pytest.mark.parametrize("is_scalar", [False, True])
def test_recomputed_float8_attention_has_six_results(is_scalar: bool) -> None:
    """With a scale of the output it is in float8."""
    heads = [head.to(torch.float8_e4m3fn) for head in _heads()]
    numbers = (0.5, 2.0, 0.25, 64.0, 8.0, 1 / 64)
    scales = numbers if is_scalar else [torch.tensor(each, device="hpu") for each in numbers]
    query, key, value = (head.float() * by for head, by in zip(heads, numbers[:3], strict=True))
    scores = query @ key.mT * _SCALE

    output, maximum, reciprocal, _, amax_s, amax_o = torch.ops.hpu.fp8_sdpa_recomp_fwd(
        *heads, None, 0.0, _SCALE, False, True, "None", *scales, True, True, None, "None"
    )

    expected = scores.softmax(-1) @ value
    assert output.dtype == torch.float8_e4m3fn
    torch.testing.assert_close(output.float() / 8, expected, rtol=0.15, atol=0.02)
    torch.testing.assert_close(maximum, scores.amax(-1, keepdim=True))
    torch.testing.assert_close((scores - maximum).exp() * reciprocal, scores.softmax(-1))
    torch.testing.assert_close((amax_s, amax_o), (scores.softmax(-1).max(), expected.abs().max()), rtol=0.1, atol=0.02)


@pytest.mark.needs_torch("2.1", "float8")
def test_float8_attention_has_a_backward() -> None:
    """Without scales it is that of attention in float32."""
    heads = _heads()
    gradient = torch.randn(2, 2, 5, 4).to("hpu")
    none: list[Any] = [None] * 8
    _, probabilities, _ = torch.ops.hpu.sdpa_fwd(*heads, None, 0.0, _SCALE, False, "None", None, "None")

    *backward, amax = torch.ops.hpu.fp8_sdpa_bwd(
        gradient, *heads, probabilities, None, False, 0.0, _SCALE, *none, True, gradient
    )

    expected = torch.ops.hpu.sdpa_bwd(gradient, *heads, probabilities, None, False, 0.0, _SCALE, gradient)
    torch.testing.assert_close(backward, list(expected))
    assert amax.item() > 0
