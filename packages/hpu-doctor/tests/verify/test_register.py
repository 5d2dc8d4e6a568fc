"""Tests of the register as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hpu_doctor.verify import register
from hpu_doctor.verify.register import calls

if TYPE_CHECKING:
    from hpu_doctor.verify.assumption import Assumption

ASSUMPTIONS = register.assumptions()
PACKAGES = {path.name for path in Path(__file__).parents[3].iterdir()}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("hpu.init()", {"hpu.init": "()"}),
        ("hpu.f(a b)", {"hpu.f": "(a b)"}),
        ("hpu.hpu", {"hpu.hpu": "there"}),
        ("!hpu.empty_cache", {"hpu.empty_cache": "absent"}),
    ],
)
def test_rows_of_the_table_of_names(row: str, expected: dict[str, str]) -> None:
    assert calls.rows_of([row]) == expected


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=lambda assumption: assumption.id)
def test_entry_is_complete(assumption: Assumption) -> None:
    assert assumption.statement.endswith(".")
    assert assumption.source
    assert assumption.means
    assert set(assumption.means) <= PACKAGES
    assert all(sentence.endswith(".") for sentence in assumption.means.values())
