"""Errors in words, and the exception hook of rank processes."""

import sys

import pytest

from hpu_core.distributed import errors
from hpu_core.distributed.errors import RankFailedError, describe_error


def _printed(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(type(error)) as raised:
        raise error from OSError("connection closed")
    sys.excepthook(raised.type, raised.value, raised.tb)
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the hook for one test."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    errors.install_hook()


def test_failure_of_another_rank_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own traceback, and that of the error that showed it, are those of a rank that waited."""
    text = _printed(RankFailedError("rank 1 (pid 7 on node) failed: KeyError: 'key'"), capsys)

    assert text.count("\n") == 1
    assert text.endswith("RankFailedError: rank 1 (pid 7 on node) failed: KeyError: 'key'\n")


def test_other_errors_have_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Traceback (most recent call last)" in _printed(ValueError("two"), capsys)


def test_hook_of_the_program_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", print)
    errors.install_hook()

    assert sys.excepthook is print


def test_a_long_error_text_is_cut() -> None:
    """The message of `load_state_dict` for a large model has hundreds of kilobytes."""
    text = describe_error(ValueError("x" * 500_000))

    assert text.startswith("ValueError: xxx")
    assert len(text) == 2000
