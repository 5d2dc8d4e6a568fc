"""Tests of the process of a program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from one_assumption import make_assumption, skip

from hpu_doctor.verify import program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Restore the working directory, which a program changes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)


def result(tmp_path: Path) -> object:
    """Return what a program has written."""
    return json.loads(program.result_file(tmp_path, 0).read_text(encoding="utf-8"))


def test_value(tmp_path: Path) -> None:
    assert program.run(make_assumption(lambda: {"a": (1, 2)}))

    assert result(tmp_path) == {"seen": {"a": [1, 2]}}


def test_error(tmp_path: Path) -> None:
    assert not program.run(make_assumption(lambda: 1 / 0))

    assert result(tmp_path) == {"error": "ZeroDivisionError: division by zero"}


def test_not_tried(tmp_path: Path) -> None:
    assert program.run(make_assumption(skip))

    assert result(tmp_path) == {"not_tried": "the machine has no tail"}
