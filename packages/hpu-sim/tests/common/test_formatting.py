"""Tests of the formatting of dtypes, operator names and numbers."""

from __future__ import annotations

import pytest
import torch

from hpu_sim.common.formatting import (
    DTYPES,
    backward_op_name,
    first_dtype,
    format_bytes,
    format_dtypes,
    format_int,
)


def test_every_name_is_a_torch_dtype() -> None:
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in DTYPES.values() if hasattr(torch, name))
    assert {"float32", "int64", "bfloat16"} <= set(DTYPES.values())


def test_unknown_dtype_keeps_its_name() -> None:
    assert format_dtypes("Quarter[3, 4]") == "Quarter[3, 4]"
    assert first_dtype("Quarter[3, 4]") == "Quarter"


def test_no_tensor_has_no_dtype() -> None:
    assert first_dtype("") == ""


@pytest.mark.parametrize(
    ("node", "expected"),
    [("PowBackward0", "Pow"), ("torch::autograd::CopyBackwards", "CopyBackwards"), ("Backward", "Backward")],
)
def test_autograd_node_gives_the_forward_operator(node: str, expected: str) -> None:
    assert backward_op_name(node) == expected


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1 << 50, "1024 TiB"), (5 << 19, "2.5 MiB"), (-2048, "-2 KiB")],
)
def test_bytes_use_the_largest_unit_that_fits(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_thousands_are_separated_by_spaces() -> None:
    assert [format_int(999), format_int(1000), format_int(12345678)] == ["999", "1 000", "12 345 678"]
