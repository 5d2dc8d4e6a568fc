"""Tests of markers that name entries of the register."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import verification

if TYPE_CHECKING:
    from pathlib import Path


def test_statements_name_existing_entries() -> None:
    assert verification.check_markers(verification.documents()) == []


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("A card has none. <!-- verify: memory-stats-keys -->", 0),
        ("A card has none. <!-- verify: memory-stats-keys, no-such-entry -->", 1),
        ("A card has none.", 0),
        ('"""The bridge ignores it."""\n# hpu-doctor verify: memory-stats-keys', 0),
        ('"""The bridge ignores it."""\n# hpu-doctor verify: none', 1),
    ],
)
def test_markers(tmp_path: Path, text: str, problems: int) -> None:
    """What needs no mark has none."""
    file = tmp_path / "file"
    file.write_text(text, encoding="utf-8")

    assert len(verification.check_markers([file])) == problems


def test_marks_stand_on_a_line_of_their_own() -> None:
    """In a page behind its paragraph, list item or table."""
    inside = re.compile(r"\S *(?:# hpu-doctor |<!-- )verify:|verify: [a-z0-9, -]+ -->\S")

    assert not [path for path in verification.documents() if inside.search(path.read_text(encoding="utf-8"))]
