"""Numbers with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_profiler._formatting import format_bytes, format_time


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(999.94, "999.9 us"), (999.96, "1 ms"), (999_499, "999 ms"), (999_600, "1 s"), (-999_600, "-1 s")],
)
def test_unit_is_chosen_after_rounding(microseconds: float, text: str) -> None:
    assert format_time(microseconds) == text


@given(st.floats(0, 1e12))
def test_time_is_readable_and_close(microseconds: float) -> None:
    """The number has no exponent and fewer than four digits before the point, and is within 1 % of the value."""
    number, unit = format_time(microseconds).split()

    assert "e" not in number
    assert unit == "s" or float(number) < 1000
    assert float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit] == pytest.approx(microseconds, rel=0.01, abs=0.05)


@given(st.integers(0, 1 << 50))
def test_bytes_are_below_the_next_unit(size: int) -> None:
    number, unit = format_bytes(size).split()

    assert unit == "TiB" or float(number) < 1024
