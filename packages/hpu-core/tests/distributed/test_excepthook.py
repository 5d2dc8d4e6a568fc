"""Tests of the exception hook of rank processes."""

import sys
from types import TracebackType

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from hpu_core.distributed import excepthook
from hpu_core.distributed.failure_detection import RankFailedError


def _fail(error: Exception) -> None:
    raise error from OSError("connection closed")


def _printed(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(type(error)) as raised:
        _fail(error)
    sys.excepthook(raised.type, raised.value, raised.tb)
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the hook for one test."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.delenv("HPU_SHORT_ERRORS", raising=False)
    monkeypatch.setattr(excepthook, "_add", None)
    excepthook.install()


def test_failure_of_another_rank_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own traceback, and that of the error that showed it, are those of a rank that waited."""
    text = _printed(RankFailedError("rank 1 (pid 7 on node) failed: KeyError: 'key'"), capsys)

    assert text.count("\n") == 1
    assert text.endswith("RankFailedError: rank 1 (pid 7 on node) failed: KeyError: 'key'\n")


def test_other_errors_have_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Traceback (most recent call last)" in _printed(ValueError("two"), capsys)


def test_short_errors_are_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPU_SHORT_ERRORS", "1")

    assert _printed(ValueError("two"), capsys) == "ValueError: two\n"


def test_hook_of_the_program_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", print)
    excepthook.install()

    assert sys.excepthook is print


def test_hook_of_the_backport_of_exception_groups_is_called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It prints all errors but those that are one line."""

    def backport(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        sys.stderr.write(f"backport: {error}\n")

    backport.__module__ = "exceptiongroup._formatting"
    monkeypatch.setattr(sys, "excepthook", backport)
    excepthook.install()

    assert _printed(ValueError("two"), capsys) == "backport: two\n"
    assert "backport" not in _printed(RankFailedError("rank 1 exited"), capsys)


def test_error_that_another_rank_raised_at_the_same_place_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    store = HashStore()
    excepthook.install(store.add)
    first, second = _printed(ValueError("sample 7"), capsys), _printed(ValueError("sample 8"), capsys)
    other = _printed(KeyError("label"), capsys)

    assert ["Traceback (most recent call last)" in text for text in (first, second, other)] == [True, False, True]
    assert second == "ValueError: sample 8\n"


def test_error_of_many_ranks_is_printed_by_a_few(capsys: pytest.CaptureFixture[str]) -> None:
    excepthook.install(HashStore().add)
    printed = [_printed(ValueError(f"sample {rank}"), capsys) for rank in range(20)]

    assert [bool(text) for text in printed] == [True] * 16 + [False] * 4


def test_error_is_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The rank that reports it prints it as well, when it ends the process."""
    store = HashStore()
    excepthook.install(store.add)
    with pytest.raises(ValueError, match="sample") as raised:
        _fail(ValueError("sample 7"))

    assert not excepthook.is_repeated(raised.value)
    sys.excepthook(raised.type, raised.value, raised.tb)
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_failure_that_other_ranks_print_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    error = RankFailedError("rank 1 exited")
    error.is_reported = True

    assert _printed(error, capsys) == ""


def test_error_has_a_traceback_if_the_store_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(key: str, number: int) -> int:
        raise RuntimeError(f"connection closed, {key} {number}")

    excepthook.install(fail)

    assert "Traceback (most recent call last)" in _printed(ValueError("two"), capsys)
