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
    return _parse_devices.parse(devices, every=lambda: present)


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


def test_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """More cards than there are is an error that says how many there are."""
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
    message = "`devices` must be at most 2, the number of cards that can be used here, got 3"

    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        _parse_devices.check(3, present=2)


def test_more_than_the_variable_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names HABANA_VISIBLE_MODULES when that is what limits the number."""
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "2,3")

    with pytest.raises(ValueError, match=r"can be used here with HABANA_VISIBLE_MODULES='2,3', got 8$"):
        _parse_devices.check(8, present=2)


@pytest.mark.parametrize(("number", "present"), [(2, 2), (1, 8), (8, 0)])
def test_as_many_as_there_are(number: int, present: int) -> None:
    """No more than there are is accepted, and any number where discovery knows of no card."""
    _parse_devices.check(number, present=present)


def test_a_number_is_read_without_counting_cards() -> None:
    """What a number means does not depend on the machine it is read on."""
    assert _parse(8, present=2) == 8


def test_every_card_where_there_is_none() -> None:
    """The error about the absence of cards comes through."""

    def every() -> int:
        raise RuntimeError("no Gaudi card was found")

    with pytest.raises(RuntimeError, match="no Gaudi card was found"):
        _parse_devices.parse("auto", every=every)


@given(devices=st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.lists(st.integers()), st.booleans()))
def test_anything(devices: object) -> None:
    """Anything is either a number of cards or refused with its value in the message."""
    try:
        number = _parse(devices)
    except (TypeError, ValueError) as error:
        assert repr(devices) in str(error)  # noqa: PT017 - not every value raises.
    else:
        assert number >= 1
