"""Tests of the dimensions that differ between two calls of an operator."""

from __future__ import annotations

import pytest

from hpu_sim.report.dynamic_shapes import changed_dimensions


@pytest.mark.parametrize(
    ("op", "before", "after", "changes"),
    [
        ("aten::mm", "f[4, 3], f[3, 8]", "f[5, 3], f[3, 8]", [("self", 0, (4, 5))]),
        ("aten::mm", "f[4, 3], f[3, 8]", "f[4, 6], f[6, 8]", [("self", 1, (3, 6)), ("mat2", 0, (3, 6))]),
        ("aten::addmm", "f[8], f[4, 3], f[3, 8]", "f[8], f[5, 3], f[3, 8]", [("mat1", 0, (4, 5))]),
        ("aten::cat", "f[4], f[4]", "f[4], f[5]", [("input 1", 0, (4, 5))]),
        ("no::operator", "f[4]", "f[5]", [("input 0", 0, (4, 5))]),
        ("aten::relu", "f[4]", "f[4, 1]", []),
        ("aten::cat", "f[4]", "f[4], f[4]", []),
        ("aten::relu", "f[4]", "f[4]", []),
    ],
)
def test_changed_dimensions(op: str, before: str, after: str, changes: list[tuple[str, int, tuple[int, int]]]) -> None:
    """Tensors have the names of the operator's schema, or their position where it has none for them."""
    assert list(changed_dimensions(op, before, after)) == changes
