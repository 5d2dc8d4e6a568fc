"""Tests of markers that name entries of the register, and of records of reports."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

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


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record without a run, in place of this repository's."""
    file = tmp_path / "verified-on.md"
    file.write_text("# Verified on\n\nNo card has been tried yet.\n", encoding="utf-8")
    monkeypatch.setattr(verification, "RECORD", file)
    return file


def write_report(folder: Path, **different: Any) -> Path:
    """Write a report with one difference, and return its folder."""
    entry = {
        "id": "memory-stats-keys",
        "subject": "Memory of a card",
        "statement": "It has ten.",
        "source": "bridge",
        "claim": "all releases",
        "packages": ["hpu-core"],
        "state": "differs",
        "expected": "[Limit]",
        "seen": "[limit | x]",
        "reason": "",
        "means": {"hpu-core": "it would be empty."},
        "seconds": 0.1,
    }
    machine = {"simulated": False, "strict": False, "release": "1.24.1", "generation": "GAUDI2", "cards": 8}
    report = {
        "schema_version": 1,
        "date": "2027-01-02",
        "seconds": 412.0,
        "machine": {**machine, "versions": {"torch": "2.11.0", "driver": None}, **different},
        "counts": {"holds": 1, "differs": 1, "not tried": 0},
        "entries": [entry],
        "points": [],
        "attachments": [],
    }
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    return folder


def test_record(page: Path, tmp_path: Path) -> None:
    corrections = verification.record(write_report(tmp_path))

    assert corrections == ["memory-stats-keys: expected [Limit], seen [limit | x]"]
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Verified on\n\n## GAUDI2, SynapseAI 1.24.1, 2027-01-02\n")
    assert "| memory-stats-keys | [Limit] | [limit \\| x] | hpu-core: it would be empty. |" in text


def test_simulated_card_is_no_card(page: Path, tmp_path: Path) -> None:
    verification.record(write_report(tmp_path, simulated=True))

    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Verified on\n\nNo card has been tried yet.\n\n## simulated GAUDI2, SynapseAI 1.24.1")
