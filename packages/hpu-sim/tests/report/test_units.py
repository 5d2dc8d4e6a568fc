"""Numbers for people."""

from __future__ import annotations

import pytest

from hpu_sim.report.units import grouped, in_bytes


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1 << 50, "1024 TiB"), (5 << 19, "2.5 MiB"), (-2048, "-2 KiB")],
)
def test_bytes_have_the_largest_unit_that_fits(size: int, text: str) -> None:
    """One digit behind the point where it is not 0."""
    assert in_bytes(size) == text


def test_thousands_are_apart() -> None:
    """By a space, which no language takes for a point."""
    assert [grouped(999), grouped(1000), grouped(12345678)] == ["999", "1 000", "12 345 678"]
