"""Parser of memory sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_sim.device.memory_size import parse_memory

_LIMIT = 1 << 40


@pytest.mark.parametrize(
    ("amount", "size"),
    [
        (1, 1),
        (1073741824, 1 << 30),
        ("1073741824", 1 << 30),
        ("16GiB", 16 << 30),
        ("16 gib", 16 << 30),
        ("500MB", 500_000_000),
        ("1.5KiB", 1536),
        ("2kB", 2000),
        ("7 B", 7),
        ("1TiB", 1 << 40),
        ("1TB", 10**12),
    ],
)
def test_a_size_is_parsed(amount: int | str, size: int) -> None:
    """Numbers are bytes. Units are powers of 1000, or of 1024 with an "i"."""
    assert parse_memory(amount, _LIMIT) == size


@pytest.mark.parametrize(
    "amount",
    ["", "lots", "GiB", "-1GiB", "1,5GiB", "16 Gi", "1e9", "16  GiB", "0", "0.1B", 0, -1, 1.5e300, True, "2TiB", None],
)
def test_an_invalid_size_is_named(amount: int | str) -> None:
    """The error has the rule, the maximum and the value."""
    message = rf"`memory` must be a number of bytes or text such as '16GiB' or '500MB', from 1 to the card's {_LIMIT} b"

    with pytest.raises(ValueError, match=message) as caught:
        parse_memory(amount, _LIMIT)

    assert str(caught.value).endswith(f"got {amount!r}")


@given(st.text("0129 .-eMGKiBb٣é"))
def test_any_text_is_a_size_or_an_error(text: str) -> None:
    """Text is either a size within the limit or a ValueError."""
    try:
        size = parse_memory(text, _LIMIT)
    except ValueError:
        return

    assert 1 <= size <= _LIMIT
