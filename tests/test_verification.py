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
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of this repository, with one release."""
    table = '[[release]]\nrelease = "1.24.1"\nhmp = false\nsources = { hmp = "inferred" }\n'
    (tmp_path / "compat.toml").write_text(f'{table}\n[[release]]\nrelease = "1.24.2"\n', encoding="utf-8")
    monkeypatch.setattr(verification, "TABLE", tmp_path / "compat.toml")
    monkeypatch.setattr(verification, "RECORD", tmp_path / "verified-on.md")
    monkeypatch.setattr(verification, "FIXTURES", tmp_path / "fixtures")
    (tmp_path / "verified-on.md").write_text("# Verified on\n\nNo card has been tried yet.\n", encoding="utf-8")
    return tmp_path


def write_report(folder: Path, **different: Any) -> Path:
    """Write a report with one difference and one attachment, and return its folder."""
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
        "attachments": ["trace.json"],
    }
    (folder / "attachments").mkdir(parents=True)
    (folder / "attachments" / "trace.json").write_text("{}", encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    return folder


def test_record(repository: Path) -> None:
    corrections = verification.record(write_report(repository / "report"))

    assert corrections == ["memory-stats-keys: expected [Limit], seen [limit | x]"]
    page = (repository / "verified-on.md").read_text(encoding="utf-8")
    assert page.startswith("# Verified on\n\n## GAUDI2, SynapseAI 1.24.1, 2027-01-02\n")
    assert "| memory-stats-keys | [Limit] | [limit \\| x] | hpu-core: it would be empty. |" in page
    assert (repository / "fixtures" / "card-1.24.1-gaudi2" / "trace.json").exists()


def test_simulated_card_is_no_card(repository: Path) -> None:
    verification.record(write_report(repository / "report", simulated=True))

    page = (repository / "verified-on.md").read_text(encoding="utf-8")
    assert page.startswith("# Verified on\n\nNo card has been tried yet.\n\n## simulated GAUDI2, SynapseAI 1.24.1")


def test_row_of_the_release(repository: Path) -> None:
    folder = write_report(repository / "report")

    verification.record(folder)
    verification.record(folder)

    run = '"2027-01-02 GAUDI2: 1 hold, 1 differ, 0 were not tried"'
    table = (repository / "compat.toml").read_text(encoding="utf-8")
    assert f"verified = [{run}, {run}]\nsources" in table
    assert table.endswith('release = "1.24.2"\n')


def test_unknown_release_is_an_error(repository: Path) -> None:
    with pytest.raises(ValueError, match=r"must have a row of the release '9\.9\.9'"):
        verification.record(write_report(repository / "report", release="9.9.9"))

    assert "No card has been tried yet." in (repository / "verified-on.md").read_text(encoding="utf-8")
