"""`devices` is a number of cards; everything else is refused with its value in the message."""

import enum
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_core.discovery import _parse_devices

_RULE = (
    "`devices` must be a positive int (also as text), 'auto', -1 for every card, or the list [0, 1, ..., n-1] for n "
    "cards, got "
)


def _parse(devices: object, present: int = 8) -> int:
    return _parse_devices.parse(devices, present=lambda: present, every=lambda: present)


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
    ],
)
def test_accepted(devices: object, expected: int) -> None:
    """Each form of a number of cards is understood."""
    assert _parse(devices) == expected


class _Devices(enum.IntEnum):
    TWO = 2


def test_an_int_of_another_kind() -> None:
    """What is an int is one."""
    assert _parse(_Devices.TWO) == 2


@pytest.mark.parametrize("devices", [0, -2, "", "0", "-2", "two", "1.5", "0,1", "+1", "٣", "AUTO"])
def test_refused_values(devices: object) -> None:
    """A value that stands for no number of cards is refused."""
    with pytest.raises(ValueError, match=f"^{re.escape(_RULE + repr(devices))}$"):
        _parse(devices)


@pytest.mark.parametrize("devices", [None, True, False, 1.5, 2.0, b"2", {0, 1}, {}, [True], ["0"], [0, 1.0], [[0]]])
def test_refused_types(devices: object) -> None:
    """A value of a type that never stands for cards is refused, as Lightning refuses it for other accelerators."""
    with pytest.raises(TypeError, match=f"^{re.escape(_RULE + repr(devices))}$"):
        _parse(devices)


@pytest.mark.parametrize("devices", [[1], [1, 0], [0, 2], [0, 0], [-1], [], (), [0, 1, 3]])
def test_refused_lists(devices: object) -> None:
    """A list that would train on other cards than it names is refused, with the way to choose cards."""
    advice = (
        ". To choose certain cards, set HABANA_VISIBLE_MODULES to their module ids (`hpu-info` shows them) before the "
        "program starts, and pass how many they are"
    )

    with pytest.raises(ValueError, match=f"^{re.escape(_RULE + repr(devices) + advice)}$"):
        _parse(devices)


@pytest.mark.parametrize("devices", [3, "3", [0, 1, 2]])
def test_more_than_there_are(devices: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """More cards than there are is an error that says how many there are."""
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
    message = f"`devices` must be at most 2, the number of cards that can be used here, got {devices!r}"

    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        _parse(devices, present=2)


def test_more_than_the_variable_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names HABANA_VISIBLE_MODULES when that is what limits the number."""
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "2,3")

    with pytest.raises(ValueError, match=r"can be used here with HABANA_VISIBLE_MODULES='2,3', got 8$"):
        _parse(8, present=2)


def test_any_number_where_no_card_is_known() -> None:
    """Where discovery knows of no card it cannot say how many are too many."""
    assert _parse(8, present=0) == 8


def test_every_card_where_there_is_none() -> None:
    """The error about the absence of cards comes through."""

    def every() -> int:
        raise RuntimeError("no Gaudi card was found")

    with pytest.raises(RuntimeError, match="no Gaudi card was found"):
        _parse_devices.parse("auto", present=lambda: 0, every=every)


@given(devices=st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.lists(st.integers()), st.booleans()))
def test_anything(devices: object) -> None:
    """Anything is either a number of cards that are there or refused with its value in the message."""
    try:
        number = _parse(devices)
    except (TypeError, ValueError) as error:
        assert repr(devices) in str(error)  # noqa: PT017 - not every value raises.
    else:
        assert 1 <= number <= 8
