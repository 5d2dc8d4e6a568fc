"""Tests of scripts/matrix.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matrix
import pytest

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_one"/>
<testcase classname="tests.test_a" name="test_two">{}</testcase>
<testcase classname="tests.test_a" name="test_three"><skipped message="Requires: a card"/></testcase>
</testsuite></testsuites>"""
PASSED = {"outcome": "pass", "passed": 2, "skipped": 1, "failed": [], "skips": {"Requires: a card": 1}}
FAILED = {**PASSED, "outcome": "fail", "passed": 1, "failed": ["tests.test_a::test_two"]}


@pytest.mark.parametrize(
    ("inside", "expected"),
    [("", PASSED), ("<failure/>", FAILED), ("<error/>", FAILED)],
    ids=["passed", "failed", "broken"],
)
def test_report_becomes_an_outcome(inside: str, expected: dict[str, Any], tmp_path: Path) -> None:
    """An outcome names the tests that failed and counts the skipped ones by their reason."""
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(inside))

    assert matrix.read_report(report) == expected


def test_report_without_tests_is_a_failure(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text("<testsuites><testsuite/></testsuites>")

    assert matrix.read_report(report)["outcome"] == "fail"


def test_missing_report_is_a_failure(tmp_path: Path) -> None:
    """A killed pytest writes no report."""
    assert matrix.read_report(tmp_path / "report.xml") == {"outcome": "fail", "reason": matrix.NO_REPORT}


def test_record_replaces_one_cell(tmp_path: Path) -> None:
    """The other cells stay as they are."""
    file = tmp_path / "matrix.json"
    matrix.record("1.18.0", "hpu-core", FAILED, file)
    matrix.record("1.18.0", "hpu-ddp", PASSED, file)
    matrix.record("1.18.0", "hpu-core", PASSED, file)

    assert [cell["outcome"] for cell in matrix.read(file).values()] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "not run"),
        (PASSED, "2 + 1"),
        (FAILED, "1 failed, 1 + 1"),
        ({"outcome": "skip", "reason": "no torch"}, "skipped"),
        ({"outcome": "fail", "reason": "no report"}, "failed: no report"),
    ],
)
def test_describe(cell: dict[str, Any] | None, text: str) -> None:
    assert matrix.describe(cell) == text


def test_older_cell_has_its_date() -> None:
    older, newest = ({**PASSED, "date": f"2026-01-0{day}"} for day in (1, 2))

    assert [matrix.describe(cell, "2026-01-02") for cell in (older, newest)] == ["2 + 1 (2026-01-01)", "2 + 1"]


def test_page_lists_what_was_not_run(tmp_path: Path) -> None:
    """A package has a row, and a release without a column is listed below the table."""
    file = tmp_path / "matrix.json"
    matrix.record("1.18.0", "hpu-core", PASSED, file)
    text = matrix.make_page({"1.18.0": "2.4.0", "1.19.0": "2.5.1"}, ["hpu-core", "hpu-ddp"], matrix.read(file))

    assert "| release | 1.18.0 |\n" in text
    assert "| hpu-core | 2 + 1 |\n| hpu-ddp | not run |\n" in text
    assert "Not run: 1.19.0." in text


def test_page_has_the_reason_of_a_skip(tmp_path: Path) -> None:
    file = tmp_path / "matrix.json"
    matrix.record("1.18.0", "hpu-core", {"outcome": "skip", "reason": "no torch"}, file)

    assert "- hpu-core on 1.18.0: no torch." in matrix.make_page({"1.18.0": "2.4.0"}, ["hpu-core"], matrix.read(file))


def test_page_is_up_to_date() -> None:
    """docs/matrix.md follows from docs/matrix.json."""
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.current_page()
