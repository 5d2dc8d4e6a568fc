"""How a process ended."""

from __future__ import annotations

import sys
from typing import NoReturn

import pytest

from hpu_sim.report.uncaught_error import MAX_MESSAGE, get_uncaught_error


def _fail(message: str) -> NoReturn:
    raise RuntimeError(message)


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> RuntimeError:
    """An error that Python has printed because nobody caught it."""
    with pytest.raises(RuntimeError) as caught:
        _fail("x" * 2 * MAX_MESSAGE)
    monkeypatch.setattr(sys, "last_value", caught.value, raising=False)
    return caught.value


def test_a_process_that_did_not_fail_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that called `sys.exit()`."""
    monkeypatch.delattr(sys, "last_value", raising=False)

    assert get_uncaught_error() is None


def test_an_error_has_its_last_line_of_the_program(failed: RuntimeError) -> None:
    """Not that of a library that the program called."""
    uncaught_error = get_uncaught_error()

    assert uncaught_error is not None
    assert uncaught_error.error == "RuntimeError"
    assert uncaught_error.frame is not None
    assert (uncaught_error.frame.function, uncaught_error.frame.source) == ("_fail", "raise RuntimeError(message)")


def test_a_long_text_is_cut(failed: RuntimeError) -> None:
    """Some errors hold whole files."""
    uncaught_error = get_uncaught_error()

    assert uncaught_error is not None
    assert uncaught_error.message == "x" * MAX_MESSAGE


def test_an_error_that_never_was_in_the_program_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was never raised."""
    monkeypatch.setattr(sys, "last_value", ValueError("no"), raising=False)
    uncaught_error = get_uncaught_error()

    assert uncaught_error is not None
    assert uncaught_error.frame is None
