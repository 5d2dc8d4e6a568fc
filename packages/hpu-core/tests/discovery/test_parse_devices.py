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
_Devices = enum.IntEnum("_Devices", {"TWO": 2})

# Values by their number; None for all.
_VALID: dict[int | None, tuple[object, ...]] = {
    None: ("auto", -1, "-1"),
    1: (1, "1", [0], "1,"),
    2: ((0, 1), [1, 3], "0, 2", _Devices.TWO),
    8: (8, " 8 "),
}
_INVALID: dict[type[Exception], tuple[object, ...]] = {
    ValueError: (0, -2, "", "0", "-2", "two", "1.5", "0,x", ",", "0,0", "+1", "٣", "AUTO", [0, 0], [-1], [], ()),
    # Lightning rejects these types for other accelerators, too.
    TypeError: (None, True, False, 1.5, 2.0, b"2", {0, 1}, {}, [True], ["0"], [0, 1.0], [[0]]),
}


@pytest.mark.parametrize(("number", "devices"), [(key, value) for key, values in _VALID.items() for value in values])
def test_valid_values(number: int | None, devices: object) -> None:
    assert _parse_devices.parse(devices) == number


@pytest.mark.parametrize(("error", "devices"), [(key, value) for key, values in _INVALID.items() for value in values])
def test_invalid_values(error: type[Exception], devices: object) -> None:
    with pytest.raises(error, match=f"^{re.escape(_RULE + repr(devices))}$"):
        _parse_devices.parse(devices)


@pytest.mark.parametrize(
    ("devices", "expected"), [([1], (1,)), ("1,", (1,)), ("3,0", (3, 0)), ((2, 1), (2, 1)), (2, None), ("2", None)]
)
def test_indices(devices: object, expected: tuple[int, ...] | None) -> None:
    assert _parse_devices.parse_indices(devices) == expected


# Not all of Unicode, which Hypothesis would have to compute in every new checkout.
_TEXTS = st.text("-1 0,:2٣ahuto[]")


@given(devices=st.one_of(_TEXTS, st.integers(), st.floats(), st.none(), st.lists(st.integers()), st.booleans()))
def test_anything(devices: object) -> None:
    """Every value gives a positive number, None or an error that contains it."""
    try:
        number = _parse_devices.parse(devices)
    except (TypeError, ValueError) as error:
        assert repr(devices) in str(error)  # noqa: PT017 - not every value raises.
    else:
        assert number is None or number >= 1
