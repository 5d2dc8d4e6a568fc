"""HABANA_VISIBLE_MODULES is either honoured or refused in words that say what to do."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_core.discovery import VisibleModulesError, _visible_modules


def _read(value: str) -> tuple[int, ...] | None:
    return _visible_modules.from_environment({"HABANA_VISIBLE_MODULES": value})


def test_not_set() -> None:
    """Without the variable nothing is limited."""
    assert _visible_modules.from_environment({}) is None


@pytest.mark.parametrize(
    ("value", "expected"), [("0", (0,)), ("3,1", (3, 1)), ("0,1,2,3,4,5,6,7", tuple(range(8))), ("10", (10,))]
)
def test_good_values(value: str, expected: tuple[int, ...]) -> None:
    """A list of module ids is read in its order."""
    assert _read(value) == expected


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("0,x", "holds something that is no module id"),
        ("", "holds something that is no module id"),
        ("-1", "holds something that is no module id"),
        ("0,", "holds something that is no module id"),
        ("0, 1", "holds something that is no module id"),
        ("01", "holds something that is no module id"),
        ("all", "holds something that is no module id"),
        ("٣", "holds something that is no module id"),
        ("1,1", "names a module twice"),
        ("0,1,2,3,4,5,6,7,8", "names 9 modules"),
    ],
)
def test_malformed_values(value: str, fault: str) -> None:
    """The error names the variable, the rule, the value and what is wrong with it."""
    with pytest.raises(VisibleModulesError, match=fault) as error:
        _read(value)

    assert str(error.value).startswith(
        "HABANA_VISIBLE_MODULES must be a comma-separated list of 1 to 8 different module ids, such as '0,1,2,3', got "
        f"{_visible_modules.text({'HABANA_VISIBLE_MODULES': value})!r}"
    )


def test_the_error_is_a_value_error() -> None:
    """Who does not know this package catches it as what it is."""
    assert issubclass(VisibleModulesError, ValueError)


@given(value=st.text())
def test_any_text(value: str) -> None:
    """Any text is either a list of different module ids, written as the bridge wants them, or refused."""
    try:
        modules = _read(value)
    except VisibleModulesError:
        return

    assert modules is not None
    assert ",".join(map(str, modules)) == value
    assert len(set(modules)) == len(modules) <= 8


def test_present_modules() -> None:
    """Modules that are all there are honoured."""
    _visible_modules.check_present([3, 0], [0, 1, 2, 3])


def test_absent_module() -> None:
    """A module that no card has is refused, with the ones that there are."""
    message = (
        "HABANA_VISIBLE_MODULES='0,9' names module 9, which no card of this machine has: name modules out of 0, 1, 2, "
        "or unset it to use every card"
    )

    with pytest.raises(VisibleModulesError, match=f"^{re.escape(message)}$"):
        _visible_modules.check_present([0, 9], [2, 1, 0])
