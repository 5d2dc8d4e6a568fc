"""Conversion of 4-bit integers."""

from __future__ import annotations

import pytest
import torch


def _pack(numbers: torch.Tensor) -> torch.Tensor:
    """Pack eight integers into each int32, the first in its lowest bits, as AWQ and GPTQ loaders do."""
    packed = torch.zeros(numbers.shape[0], numbers.shape[1] // 8, dtype=torch.int32)
    for index in range(8):
        packed |= (numbers[:, index::8] & 15).to(torch.int32) << 4 * index
    return packed


@pytest.mark.parametrize(("operator", "low"), [("convert_from_uint4", 0), ("convert_from_int4", -8)])
@pytest.mark.parametrize("groups", [1, 2, 4], ids="groups={}".format)
def test_numbers_are_shifted_and_scaled_by_group(operator: str, low: int, groups: int) -> None:
    """The rows of a group share a scale and a zero point, which is packed too."""
    torch.manual_seed(1)
    numbers = torch.randint(low, low + 16, (4, 16))
    zeros = torch.randint(low, low + 16, (groups, 16))
    scale = torch.rand(groups, 16)

    output = getattr(torch.ops.hpu, operator)(
        _pack(numbers).to("hpu"), scale.to("hpu"), _pack(zeros).to("hpu"), torch.float32
    )

    rows = 4 // groups
    expected = (numbers - zeros.repeat_interleave(rows, 0)) * scale.repeat_interleave(rows, 0)
    torch.testing.assert_close(output.cpu(), expected)


def test_a_zero_point_is_optional() -> None:
    numbers = torch.arange(16).reshape(1, 16)

    output = torch.ops.hpu.convert_from_uint4(
        _pack(numbers).to("hpu"), torch.tensor(0.5, device="hpu"), None, torch.bfloat16
    )

    assert output.dtype == torch.bfloat16
    assert output.tolist() == (numbers * 0.5).tolist()
