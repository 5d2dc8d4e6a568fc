"""Fused kernels and normalization."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import (
    FusedSDPA,
    RotaryPosEmbeddingHelperV1,
    RotaryPosEmbeddingHelperV2,
    RotaryPosEmbeddingHelperV3,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)
from habana_frameworks.torch.hpex.normalization import FusedClipNorm, FusedRMSNorm, RmsNormBwdMode
from torch.nn import functional

import hpu_sim


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


def test_clipping_of_one_tensor_and_of_no_gradient() -> None:
    """Without gradients the norm is a tensor too. A training loop clips at each step, and the host waits for none."""
    (parameter, *_) = _parameters("hpu")
    before = hpu_sim.stats()["host_syncs"]

    FusedClipNorm(parameter, 0.5).clip_norm(parameter)
    norm = FusedClipNorm([], 1.0).clip_norm([torch.nn.Parameter(torch.ones(2, device="hpu"))])

    assert hpu_sim.stats()["host_syncs"] == before
    assert parameter.grad is not None
    assert float(parameter.grad.norm()) == pytest.approx(0.5, abs=1e-5)
    assert torch.equal(norm, torch.tensor(0.0))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_stages": False, "bwd_mode": 1, "fast_math": True},
        {"bwd_mode": RmsNormBwdMode.STATIC_CASE_WIDTH_PARTITIONING},
    ],
)
def test_rms_normalization_follows_the_formula(options: dict[str, Any]) -> None:
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


_ATTENTION_ARGUMENTS = {
    "attn_mask": None,
    "dropout_p": 0.0,
    "is_causal": False,
    "scale": None,
    "softmax_mode": "None",
    "recompute": None,
    "valid_seq_len": None,
    "seq_padding_type": "left",
    "return_dropout_mask": False,
    "return_attn_probs": False,
}


def _attend(*heads: torch.Tensor, **options: Any) -> Any:
    """Call the attention with all arguments, in the bridge's order."""
    return FusedSDPA.apply(*heads, *{**_ATTENTION_ARGUMENTS, **options}.values())


@pytest.mark.parametrize("options", [{}, {"is_causal": True}])
def test_attention_equals_torchs(options: dict[str, Any]) -> None:
    """The arguments come in the bridge's order, without keywords, and those for kernels of a card are ignored."""
    heads = [tensor.requires_grad_() for tensor in _heads()]
    apply: Any = FusedSDPA.apply

    output = _attend(*heads, **options, softmax_mode="fast", recompute=True)

    query, key, value = heads
    expected = functional.scaled_dot_product_attention(query, key, value, **options)
    torch.testing.assert_close(output, expected)
    gradients = [torch.autograd.grad(each.square().sum(), heads) for each in (output, expected)]
    torch.testing.assert_close(*gradients)
    with pytest.raises(TypeError, match="keyword"):
        apply(*heads, is_causal=True)


def test_attention_can_be_scaled() -> None:
    query, key, value = _heads()

    output = _attend(query, key, value, scale=0.3)

    torch.testing.assert_close(output, (0.3 * query @ key.mT).softmax(-1) @ value)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("side", "kept"), [("left", slice(2, 5)), ("right", slice(0, 3))])
def test_attention_ignores_padding(side: str, kept: slice, is_causal: bool) -> None:
    """Keys outside the valid length are masked, on either side; the left one is the default."""
    query, key, value = _heads()
    lengths = torch.tensor([3, 3], device="hpu")

    options = {} if side == "left" else {"seq_padding_type": side}

    output = _attend(query, key, value, is_causal=is_causal, valid_seq_len=lengths, **options)

    mask = torch.zeros(5, 5, dtype=torch.bool, device="hpu")
    mask[:, kept] = True
    if is_causal:
        mask = mask.tril()
    expected = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    # A row that sees no key has no defined result.
    rows = mask.any(-1)
    torch.testing.assert_close(output[..., rows, :], expected[..., rows, :])


def test_attention_returns_its_probabilities_in_inference() -> None:
    """All thirteen arguments may be positional."""
    heads = _heads()

    output, probabilities = FusedSDPA.apply(*heads, None, 0.0, True, None, "None", None, None, "left", False, True)

    torch.testing.assert_close(output, functional.scaled_dot_product_attention(*heads, is_causal=True))
    torch.testing.assert_close(probabilities @ heads[2], output)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"return_dropout_mask": True}, "return_dropout_mask"),
        ({"return_attn_probs": True}, "return_attn_probs with gradients"),
    ],
)
def test_combinations_that_the_bridge_lacks_are_refused(options: dict[str, Any], text: str) -> None:
    heads = [tensor.requires_grad_() for tensor in _heads()]

    with pytest.raises(AssertionError, match=f"FusedSDPA does not support {text}"):
        _attend(*heads, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool], ids=str)
def test_attention_takes_a_mask_and_the_causal_flag(dtype: torch.dtype) -> None:
    """Attention of torch accepts one of them only."""
    heads = _heads()
    allowed = ~torch.eye(5, dtype=torch.bool, device="hpu")
    allowed[0, 0] = True
    mask = allowed if dtype == torch.bool else torch.zeros(5, 5, device="hpu").masked_fill(~allowed, -torch.inf)

    output = FusedSDPA.apply(*heads, mask, 0.0, True)

    expected = functional.scaled_dot_product_attention(*heads, attn_mask=allowed & allowed.new_ones(5, 5).tril())
    torch.testing.assert_close(output, expected)


def _rotated(x: torch.Tensor, angles: torch.Tensor, *, is_pairwise: bool) -> torch.Tensor:
    """Return pairs of elements as complex numbers times the units of their angles; other features stay."""
    size = angles.shape[-1]
    first, second = (x[..., 0:size:2], x[..., 1:size:2]) if is_pairwise else x[..., :size].chunk(2, -1)
    angle = angles[..., ::2] if is_pairwise else angles[..., : size // 2]
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
    parts = torch.view_as_real(turned).flatten(-2) if is_pairwise else torch.cat((turned.real, turned.imag), -1)
    return torch.cat((parts, x[..., size:]), -1)


@pytest.mark.parametrize("is_pairwise", [False, True])
def test_rotation_turns_pairs_by_the_angles_of_their_positions(is_pairwise: bool) -> None:
    """Features beyond those of the angles stay."""
    x, angles = torch.randn(2, 3, 4, 8), torch.rand(1, 1, 9, 6)
    angles = angles.repeat_interleave(2, -1)[..., :6] if is_pairwise else angles[..., :3].repeat(1, 1, 1, 2)
    mode = RotaryPosEmbeddingMode.PAIRWISE if is_pairwise else RotaryPosEmbeddingMode.BLOCKWISE
    ids = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]])
    query, cos, sin = x.to("hpu"), angles.cos().to("hpu"), angles.sin().to("hpu")

    at_offset = apply_rotary_pos_emb(query, cos, sin, None, 2, mode)
    at_ids = apply_rotary_pos_emb(query, cos, sin, ids.to("hpu"), 0, mode)

    torch.testing.assert_close(at_offset.cpu(), _rotated(x, angles[:, :, 2:6], is_pairwise=is_pairwise))
    torch.testing.assert_close(at_ids.cpu(), _rotated(x, angles[0, 0][ids][:, None], is_pairwise=is_pairwise))


def test_helpers_of_rotation_are_the_function() -> None:
    """Version 3 is ChatGLM's: one table, each pair of neighbours together."""
    query, angles = torch.randn(2, 3, 4, 8, device="hpu"), torch.rand(1, 1, 9, 8, device="hpu")
    cos, sin = angles.cos(), angles.sin()
    ids = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]]).to("hpu")
    rows, cache = query.permute(2, 0, 1, 3), torch.stack((cos[0, 0, :, :2], sin[0, 0, :, :2]), -1)[:, None]
    own = [each[..., :2].repeat_interleave(2, -1) for each in (cos, sin)]

    first = RotaryPosEmbeddingHelperV1.apply(query, cos, sin, 2)
    second = RotaryPosEmbeddingHelperV2.apply(query, cos, sin, ids)
    third = RotaryPosEmbeddingHelperV3.apply(rows, cache.expand(-1, 2, -1, -1))

    assert torch.equal(first, apply_rotary_pos_emb(query, cos, sin, None, 2))
    assert torch.equal(second, apply_rotary_pos_emb(query, cos, sin, ids))
    expected = apply_rotary_pos_emb(query, *own, mode=RotaryPosEmbeddingMode.PAIRWISE)
    torch.testing.assert_close(third.permute(1, 2, 0, 3), expected)
