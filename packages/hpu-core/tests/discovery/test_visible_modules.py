"""Tests of HABANA_VISIBLE_MODULES."""

import pytest

from hpu_core.discovery import VisibleModulesError, _visible_modules


def _read(value: str) -> tuple[int, ...] | None:
    return _visible_modules.from_environment({"HABANA_VISIBLE_MODULES": value})


def test_not_set() -> None:
    assert _visible_modules.from_environment({}) is None


@pytest.mark.parametrize(
    ("value", "expected"), [("0", (0,)), ("3,1", (3, 1)), ("0,1,2,3,4,5,6,7", tuple(range(8))), ("10", (10,))]
)
def test_valid_values(value: str, expected: tuple[int, ...]) -> None:
    assert _read(value) == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0,x", "has an entry that is not a module id"),
        ("", "has an entry that is not a module id"),
        ("-1", "has an entry that is not a module id"),
        ("0,", "has an entry that is not a module id"),
        ("0, 1", "has an entry that is not a module id"),
        ("01", "has an entry that is not a module id"),
        ("all", "has an entry that is not a module id"),
        ("٣", "has an entry that is not a module id"),
        ("1,1", "has the same module twice"),
        ("0,1,2,3,4,5,6,7,8", "has 9 modules"),
    ],
)
def test_invalid_values(value: str, reason: str) -> None:
    """The error has the variable, the rule, the value and the reason."""
    with pytest.raises(VisibleModulesError, match=reason) as error:
        _read(value)

    assert str(error.value).startswith(
        "HABANA_VISIBLE_MODULES must be a comma-separated list of 1 to 8 different module ids, such as '0,1,2,3', got "
        f"{_visible_modules.visible_modules_text({'HABANA_VISIBLE_MODULES': value})!r}"
    )


@pytest.mark.parametrize("user", ["4,5,6", None])
def test_selection_is_kept_apart_from_the_users_value(user: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge reads the selection, discovery the user's value."""
    monkeypatch.setenv("HPU_SELECTED_MODULES", "")
    # Set first, so that it is unset again afterwards.
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "")
    monkeypatch.delenv("HABANA_VISIBLE_MODULES")
    if user is not None:
        monkeypatch.setenv("HABANA_VISIBLE_MODULES", user)
    before = _visible_modules.from_environment()
    _visible_modules.select([6, 4])
    _visible_modules.select([5])

    assert (_visible_modules.selected(), _visible_modules.from_environment()) == ((5,), before)
    _visible_modules.select(None)
    assert (_visible_modules.selected(), _visible_modules.visible_modules_text()) == (before, user)


def test_value_that_the_program_sets_replaces_the_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPU_SELECTED_MODULES", "")
    # Set first, so that it is unset again afterwards.
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "")
    monkeypatch.delenv("HABANA_VISIBLE_MODULES")
    _visible_modules.select([1])
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "3")

    assert _visible_modules.from_environment() == (3,)
