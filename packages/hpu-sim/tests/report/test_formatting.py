"""Names of dtypes, shapes and operators."""

from __future__ import annotations

import pytest
import torch

from hpu_sim.report.formatting import (
    DTYPES,
    backward_op_name,
    changed_inputs,
    first_dtype,
    format_bytes,
    format_dtypes,
    format_int,
)


def test_every_dtype_is_torchs() -> None:
    """So that a reader can look it up."""
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in DTYPES.values() if hasattr(torch, name))
    assert {"float32", "int64", "bfloat16"} <= set(DTYPES.values())


def test_a_dtype_without_a_name_keeps_its_own() -> None:
    """One that a later torch brings."""
    assert format_dtypes("Quarter[3, 4]") == "Quarter[3, 4]"
    assert first_dtype("Quarter[3, 4]") == "Quarter"


def test_nothing_has_no_dtype() -> None:
    """A collective without tensors."""
    assert first_dtype("") == ""


@pytest.mark.parametrize(
    ("node", "expected"),
    [("PowBackward0", "Pow"), ("torch::autograd::CopyBackwards", "CopyBackwards"), ("Backward", "Backward")],
)
def test_nodes_are_named_after_their_operator(node: str, expected: str) -> None:
    """Without what every node's name ends in."""
    assert backward_op_name(node) == expected


def test_another_number_of_inputs_is_shown_in_full() -> None:
    """There is no telling which one was added."""
    assert changed_inputs("float32[3]", "float32[3], int64[]") == ("float32[3]", "float32[3], int64[]")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1 << 50, "1024 TiB"), (5 << 19, "2.5 MiB"), (-2048, "-2 KiB")],
)
def test_bytes_have_the_largest_unit_that_fits(size: int, text: str) -> None:
    """One digit behind the point where it is not 0."""
    assert format_bytes(size) == text


def test_thousands_are_apart() -> None:
    """By a space, which no language takes for a point."""
    assert [format_int(999), format_int(1000), format_int(12345678)] == ["999", "1 000", "12 345 678"]
