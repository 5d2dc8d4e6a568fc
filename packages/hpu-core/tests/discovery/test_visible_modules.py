"""Tests of HABANA_VISIBLE_MODULES."""

import pytest

from hpu_core.discovery import VisibleModulesError, _visible_modules


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), ("3,1", (3, 1)), ("0,1,2,3,4,5,6,7", tuple(range(8))), ("10", (10,))]
)
def test_valid_values(value: str | None, expected: tuple[int, ...] | None) -> None:
    environment = {} if value is None else {"HABANA_VISIBLE_MODULES": value}

    assert _visible_modules.from_environment(environment) == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((value, "has an entry that is not a module id") for value in ("0,x", "", "-1", "0,", "0, 1", "01", "٣")),
        ("1,1", "has the same module twice"),
        ("0,1,2,3,4,5,6,7,8", "has 9 modules"),
    ],
)
def test_invalid_values(value: str, reason: str) -> None:
    """The error has the variable, the rule, the value and the reason."""
    environment = {"HABANA_VISIBLE_MODULES": value}
    with pytest.raises(VisibleModulesError, match=reason) as error:
        _visible_modules.from_environment(environment)

    assert str(error.value).startswith(
        "HABANA_VISIBLE_MODULES must be a comma-separated list of 1 to 8 different module ids, such as '0,1,2,3', got "
        f"{_visible_modules.visible_modules_text(environment)!r}"
    )


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables, set first, so that they are unset again afterwards."""
    for name in ("HPU_SELECTED_MODULES", "HABANA_VISIBLE_MODULES"):
        monkeypatch.setenv(name, "")
    monkeypatch.delenv("HABANA_VISIBLE_MODULES")


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("user", ["4,5,6", None])
def test_selection_is_kept_apart_from_the_users_value(user: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge reads the selection, discovery the user's value."""
    if user is not None:
        monkeypatch.setenv("HABANA_VISIBLE_MODULES", user)
    before = _visible_modules.from_environment()
    _visible_modules.select([6, 4])
    _visible_modules.select([5])

    assert (_visible_modules.selected(), _visible_modules.from_environment()) == ((5,), before)
    _visible_modules.select(None)
    assert (_visible_modules.selected(), _visible_modules.visible_modules_text()) == (before, user)


@pytest.mark.usefixtures("unset")
def test_value_that_the_program_sets_replaces_the_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    _visible_modules.select([1])
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "3")

    assert _visible_modules.from_environment() == (3,)
