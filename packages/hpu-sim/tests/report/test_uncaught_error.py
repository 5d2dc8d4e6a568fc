"""Tests of the uncaught exception of a process."""

from __future__ import annotations

import sys
from typing import NoReturn

import pytest

from hpu_sim.report.uncaught_error import MAX_MESSAGE, get_uncaught_error


def _fail(message: str) -> NoReturn:
    raise RuntimeError(message)


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> RuntimeError:
    """Return an exception with a long message that Python keeps as uncaught."""
    with pytest.raises(RuntimeError) as caught:
        _fail("x" * 2 * MAX_MESSAGE)
    monkeypatch.setattr(sys, "last_value", caught.value, raising=False)
    return caught.value


def test_successful_process_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)

    assert get_uncaught_error() is None


def test_innermost_frame_of_the_program_is_kept(failed: RuntimeError) -> None:
    error = get_uncaught_error()

    assert error is not None
    assert error.error == "RuntimeError"
    assert error.frame is not None
    assert (error.frame.function, error.frame.source) == ("_fail", "raise RuntimeError(message)")


def test_long_message_is_truncated(failed: RuntimeError) -> None:
    error = get_uncaught_error()

    assert error is not None
    assert error.message == "x" * MAX_MESSAGE


def test_exception_without_traceback_has_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError("no"), raising=False)
    error = get_uncaught_error()

    assert error is not None
    assert error.frame is None
