"""Fused normalization and attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from habana_frameworks.torch.hpex.normalization import FusedClipNorm, FusedRMSNorm
from torch.nn import functional


def _parameters(device: str) -> list[torch.nn.Parameter]:
    torch.manual_seed(5)
    parameters = [torch.nn.Parameter(torch.randn(shape).to(device)) for shape in ((3, 4), (5,), (2,))]
    for parameter in parameters[:2]:
        parameter.grad = torch.randn(parameter.shape).to(device)
    return parameters


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_gradients_are_clipped_as_torch_clips_them(max_norm: float) -> None:
    """Parameters without a gradient are skipped, and small gradients stay."""
    mine, theirs = _parameters("hpu"), _parameters("cpu")

    norm = FusedClipNorm(mine, max_norm).clip_norm(mine)

    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    torch.testing.assert_close(norm.cpu(), expected)
    for fused, plain in zip(mine[:2], theirs[:2], strict=True):
        assert fused.grad is not None
        torch.testing.assert_close(fused.grad.cpu(), plain.grad)


def test_a_single_tensor_can_be_clipped() -> None:
    (parameter, *_) = _parameters("hpu")

    FusedClipNorm(parameter, 0.5).clip_norm(parameter)

    assert parameter.grad is not None
    assert float(parameter.grad.norm()) == pytest.approx(0.5, abs=1e-5)


def test_without_gradients_the_norm_is_zero() -> None:
    """It is a tensor, not a number."""
    norm = FusedClipNorm([], 1.0).clip_norm([torch.nn.Parameter(torch.ones(2, device="hpu"))])

    assert torch.equal(norm, torch.tensor(0.0))


def test_clipping_is_not_a_host_sync() -> None:
    """A training loop calls it at each step."""
    import hpu_sim

    parameters = _parameters("hpu")
    clip = FusedClipNorm(parameters, 0.5)
    before = hpu_sim.stats()["host_syncs"]

    clip.clip_norm(parameters)

    assert hpu_sim.stats()["host_syncs"] == before


@pytest.mark.parametrize("options", [{}, {"use_stages": False, "bwd_mode": 1, "fast_math": True}])
def test_rms_normalization_follows_the_formula(options: dict[str, bool]) -> None:
    """The choice of a kernel does not matter."""
    rows, gamma = torch.randn(3, 4, device="hpu"), torch.randn(4, device="hpu")

    output = FusedRMSNorm.apply(rows, gamma, 1e-6, **options)

    torch.testing.assert_close(output, rows / (rows.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gamma)


def test_rms_normalization_has_correct_gradients() -> None:
    torch.manual_seed(6)
    rows = torch.randn(2, 3, dtype=torch.float64, device="hpu", requires_grad=True)
    gamma = torch.randn(3, dtype=torch.float64, device="hpu", requires_grad=True)

    assert torch.autograd.gradcheck(lambda x, g: FusedRMSNorm.apply(x, g, 1e-6), (rows, gamma))


def test_rms_normalization_computes_in_float32() -> None:
    """Squares of large 16-bit numbers would overflow."""
    rows = torch.full((2, 4), 3e4, dtype=torch.float16, device="hpu")

    output = FusedRMSNorm.apply(rows, torch.ones(4, dtype=torch.float16, device="hpu"), 1e-6)

    assert output.dtype == torch.float16
    assert output.tolist() == [[1.0] * 4] * 2


def _heads() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(7)
    first, second, third = (torch.randn(2, 2, 5, 4, device="hpu") for _ in range(3))
    return first, second, third


@pytest.mark.parametrize("options", [{}, {"is_causal": True}])
def test_attention_equals_torchs(options: dict[str, Any]) -> None:
    """The arguments come in the bridge's order, and those for kernels of a card are ignored."""
    heads = _heads()

    output = FusedSDPA.apply(*heads, **options, softmax_mode="fast", recompute=True)

    torch.testing.assert_close(output, functional.scaled_dot_product_attention(*heads, **options))


def test_attention_can_be_scaled() -> None:
    query, key, value = _heads()

    output = FusedSDPA.apply(query, key, value, scale=0.3)

    torch.testing.assert_close(output, (0.3 * query @ key.mT).softmax(-1) @ value)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("side", "kept"), [("left", slice(2, 5)), ("right", slice(0, 3))])
def test_attention_ignores_padding(side: str, kept: slice, is_causal: bool) -> None:
    """Keys outside the valid length are masked, on either side."""
    query, key, value = _heads()
    lengths = torch.tensor([3, 3], device="hpu")

    output = FusedSDPA.apply(
        query, key, value, None, 0.0, is_causal, None, valid_seq_len=lengths, seq_padding_type=side
    )

    mask = torch.zeros(5, 5, dtype=torch.bool, device="hpu")
    mask[:, kept] = True
    if is_causal:
        mask = mask.tril()
    expected = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    # A row that sees no key has no defined result.
    rows = mask.any(-1)
    torch.testing.assert_close(output[..., rows, :], expected[..., rows, :])


def test_attention_has_gradients() -> None:
    """They equal torch's."""
    heads = [tensor.requires_grad_() for tensor in _heads()]

    FusedSDPA.apply(*heads).sum().backward()

    assert all(tensor.grad is not None for tensor in heads)
