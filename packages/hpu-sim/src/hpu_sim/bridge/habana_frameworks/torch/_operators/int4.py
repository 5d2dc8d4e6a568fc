"""Conversion of 4-bit integers, eight of which an int32 holds, the first in its lowest bits."""

from __future__ import annotations

import functools
from typing import Final

import torch

from habana_frameworks.torch._operators.float8 import saturate

_PER_WORD: Final = 8


def _unpack(packed: torch.Tensor, *, is_signed: bool) -> torch.Tensor:
    """Return the integers of a tensor, with eight times as many columns."""
    shifts = 4 * torch.arange(_PER_WORD, dtype=torch.int32, device=packed.device)
    # `>>` does not broadcast while torch 2.1 traces.
    numbers = torch.bitwise_right_shift(packed.to(torch.int32).unsqueeze(-1), shifts) & 15
    if is_signed:
        numbers = (numbers ^ 8) - 8
    return numbers.flatten(-2)


def _convert(
    *,
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    out_dtype: torch.dtype,
    is_signed: bool,
) -> torch.Tensor:
    numbers = _unpack(input, is_signed=is_signed)
    rows, columns = numbers.shape[-2:]

    def per_row(values: torch.Tensor) -> torch.Tensor:
        # One row of values for each group of rows.
        is_grouped = values.dim() > 1 and values.shape[-2] not in {1, rows}
        return values.repeat_interleave(rows // values.shape[-2], -2) if is_grouped else values

    wide = numbers.float()
    if zero_point is not None:
        is_packed = zero_point.dtype == torch.int32 and zero_point.shape[-1] * _PER_WORD == columns
        wide = wide - per_row(_unpack(zero_point, is_signed=is_signed) if is_packed else zero_point).float()
    output: torch.Tensor = saturate(wide * per_row(scale).float(), out_dtype)
    return output


_ARGUMENTS: Final = "Tensor input, Tensor scale, Tensor? zero_point, ScalarType out_dtype"

#: Schemas and functions.
OPERATORS: Final = (
    (f"convert_from_int4({_ARGUMENTS}) -> Tensor", functools.partial(_convert, is_signed=True)),
    (f"convert_from_uint4({_ARGUMENTS}) -> Tensor", functools.partial(_convert, is_signed=False)),
)
