"""Tests of the parser for `devices`."""

import enum
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_core.discovery import _parse_devices

_RULE = (
    "`devices` must be a positive int (also as text), 'auto', -1 for all cards, or different indices of cards such as "
    "[0, 1] or '1,', got "
)


def _parse(devices: object, available: int = 8) -> int:
    number = _parse_devices.parse(devices)
    return available if number is None else number


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (1, 1),
        (8, 8),
        ("1", 1),
        (" 8 ", 8),
        ("auto", 8),
        (-1, 8),
        ("-1", 8),
        ([0], 1),
        ([0, 1, 2], 3),
        ((0, 1), 2),
        ([1, 3], 2),
        ("1,", 1),
        ("0, 2", 2),
    ],
)
def test_valid_values(devices: object, expected: int) -> None:
    assert _parse(devices) == expected


class _Devices(enum.IntEnum):
    TWO = 2


def test_int_subclass() -> None:
    assert _parse(_Devices.TWO) == 2


@pytest.mark.parametrize("devices", [0, -2, "", "0", "-2", "two", "1.5", "0,x", ",", "0,0", "+1", "٣", "AUTO"])
def test_invalid_values(devices: object) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(_RULE + repr(devices))}$"):
        _parse(devices)


@pytest.mark.parametrize("devices", [None, True, False, 1.5, 2.0, b"2", {0, 1}, {}, [True], ["0"], [0, 1.0], [[0]]])
def test_invalid_types(devices: object) -> None:
    """Lightning rejects these types for other accelerators, too."""
    with pytest.raises(TypeError, match=f"^{re.escape(_RULE + repr(devices))}$"):
        _parse(devices)


@pytest.mark.parametrize("devices", [[0, 0], [-1], [], ()])
def test_invalid_lists(devices: object) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(_RULE + repr(devices))}$"):
        _parse(devices)


@pytest.mark.parametrize(
    ("devices", "expected"), [([1], (1,)), ("1,", (1,)), ("3,0", (3, 0)), ((2, 1), (2, 1)), (2, None), ("2", None)]
)
def test_indices(devices: object, expected: tuple[int, ...] | None) -> None:
    assert _parse_devices.parse_indices(devices) == expected


def test_number_is_parsed_without_counting() -> None:
    assert _parse(8, available=2) == 8


@given(devices=st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.lists(st.integers()), st.booleans()))
def test_anything(devices: object) -> None:
    """Every value gives a positive number or an error that contains it."""
    try:
        number = _parse(devices)
    except (TypeError, ValueError) as error:
        assert repr(devices) in str(error)  # noqa: PT017 - not every value raises.
    else:
        assert number >= 1
