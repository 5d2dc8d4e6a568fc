"""Operators of float8 tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytestmark = pytest.mark.needs_torch("2.1", "float8")


def _float8(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a float8 tensor on the device, and its values in float32."""
    narrow = torch.randn(*shape).to(torch.float8_e4m3fn)
    return narrow.to("hpu"), narrow.float()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(11)


def test_casts_to_float8_and_back() -> None:
    """E5M2 is the default dtype, and the absolute maximum is empty unless requested."""
    rows = torch.tensor([0.5, -1.0, 2.0], device="hpu")
    scale = torch.tensor(4.0, device="hpu")

    quantized, amax = torch.ops.hpu.cast_to_fp8_v2(rows, scale, False, True, dtype=torch.float8_e4m3fn)
    back = torch.ops.hpu.cast_from_fp8(quantized, 1 / scale, torch.float32)

    assert quantized.dtype == torch.float8_e4m3fn
    assert amax.item() == 2
    assert torch.equal(back, rows)
    plain, empty = torch.ops.hpu.cast_to_fp8_v2(rows)
    assert (plain.dtype, empty.numel()) == (torch.float8_e5m2, 0)
    assert torch.ops.hpu.cast_from_fp8(plain, None, torch.bfloat16).tolist() == rows.tolist()


def test_a_cast_to_float8_clamps_to_the_range_of_the_device() -> None:
    """Gaudi 2's E4M3 has a smaller range than torch's."""
    rows = torch.tensor([1e9, -1e9], device="hpu")

    small, _ = torch.ops.hpu.cast_to_fp8_v2(rows, None, dtype=torch.float8_e4m3fn)
    large, _ = torch.ops.hpu.cast_to_fp8_v2(rows, None, dtype=torch.float8_e5m2)

    assert small.float().tolist() == [240, -240]
    assert large.float().tolist() == [57344, -57344]


@pytest.mark.parametrize(
    ("scale", "options"),
    [(4.0, {}), ([4.0, 2.0], {"scale_shape": [2, 1]}), (torch.tensor([4.0, 2.0]), {"scale_shape": [2, 1]})],
    ids=["number", "list", "tensor"],
)
def test_a_scale_may_be_a_number_a_list_or_a_tensor(scale: Any, options: dict[str, Any]) -> None:
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    scale = scale.to("hpu") if isinstance(scale, torch.Tensor) else scale
    factor = 4.0 if isinstance(scale, float) else torch.tensor([[4.0], [2.0]])

    narrow, _ = torch.ops.hpu.cast_to_fp8_v2(rows.to("hpu"), scale, False, False, torch.float8_e5m2, **options)
    wide = torch.ops.hpu.cast_from_fp8(narrow, scale, torch.float32, **options)

    assert torch.equal(narrow.cpu().float(), rows * factor)
    assert torch.equal(wide.cpu(), rows * factor * factor)


@pytest.mark.parametrize("bias", [3, 7, 11, 15])
def test_an_exponent_bias_of_gaudi_2_is_an_exact_scale(bias: int) -> None:
    """All E4M3 numbers of the bias, from the least to the largest, have a code each."""
    scale = 2.0 ** (bias - 7)
    codes = torch.tensor([(1 + part / 8) * 2.0 ** (power - bias) for power in range(1, 15) for part in range(8)])

    narrow, _ = torch.ops.hpu.cast_to_fp8_v2(codes.to("hpu"), scale, dtype=torch.float8_e4m3fn)

    assert torch.equal(torch.ops.hpu.cast_from_fp8(narrow, 1 / scale, torch.float32).cpu(), codes)


@pytest.mark.parametrize("scales", [(2.0, 0.5), ([2.0], [0.5]), (torch.tensor(2.0), torch.tensor(0.5)), (None, None)])
@pytest.mark.parametrize("trans", [False, True])
def test_a_matrix_product(scales: tuple[Any, Any], trans: bool) -> None:
    """It is multiplied by both scales, of which one may be per column, and gets the bias and the addend."""
    left, wide_left = _float8(4, 3)
    right, wide_right = _float8(5, 3) if trans else _float8(3, 5)
    bias, addend = torch.randn(5), torch.randn(4, 5)
    product = wide_left @ (wide_right.mT if trans else wide_right)
    inverse = [each.to("hpu") if isinstance(each, torch.Tensor) else each for each in scales]

    output = torch.ops.hpu.fp8_gemm_v2(
        left, False, right, trans, addend.to("hpu"), torch.float32, *inverse, bias.to("hpu"), True
    )

    torch.testing.assert_close(output.cpu(), product + bias + addend)
    if trans:
        return
    columns = torch.rand(5)
    arguments = (left, False, right, False, None, torch.float32, None, columns.to("hpu"))
    torch.testing.assert_close(torch.ops.hpu.fp8_gemm_v2(*arguments, B_scale_shape=[1, 5]).cpu(), product * columns)
