"""Tests of the process of a program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from one_assumption import make_assumption, skip

from hpu_doctor.verify import program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Restore the working directory, which a program changes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)


@pytest.mark.parametrize(
    ("call", "is_tried", "written"),
    [
        (lambda: {"a": (1, 2)}, True, {"seen": {"a": [1, 2]}}),
        (lambda: 1 / 0, False, {"error": "ZeroDivisionError: division by zero"}),
        (skip, True, {"not_tried": "the machine has no tail"}),
    ],
)
def test_result(call: Callable[[], object], is_tried: bool, written: object, tmp_path: Path) -> None:
    assert program.run(make_assumption(call)) is is_tried
    assert json.loads(program.result_file(tmp_path, 0).read_text(encoding="utf-8")) == written
