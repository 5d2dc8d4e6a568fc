"""What is noted of the tests of packages on SynapseAI releases, and the page that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import constraints
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
def test_a_report_is_an_outcome(inside: str, expected: dict[str, Any], tmp_path: Path) -> None:
    """It fails when one test does, and says which; what was skipped is counted by its reason."""
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(inside))

    assert matrix.read_report(report) == expected


def test_no_tests_are_no_pass(tmp_path: Path) -> None:
    """A run that collected nothing shows nothing."""
    report = tmp_path / "report.xml"
    report.write_text("<testsuites><testsuite/></testsuites>")

    assert matrix.read_report(report)["outcome"] == "fail"


def test_no_report_is_a_failure(tmp_path: Path) -> None:
    """Pytest that is killed writes none."""
    assert matrix.read_report(tmp_path / "report.xml") == {"outcome": "fail", "reason": matrix.NO_REPORT}


def test_a_note_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    """And leaves the other cells as they are."""
    file = tmp_path / "matrix.json"
    matrix.note("1.18.0", "hpu-core", FAILED, file)
    matrix.note("1.18.0", "hpu-ddp", PASSED, file)
    matrix.note("1.18.0", "hpu-core", PASSED, file)

    assert [cell["outcome"] for cell in matrix.read(file).values()] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (None, "not run"),
        (PASSED, "2 passed, 1 skipped"),
        (FAILED, "1 failed, 1 passed, 1 skipped"),
        ({"outcome": "skip", "reason": "no torch"}, "skipped"),
        ({"outcome": "fail", "reason": "no report"}, "failed: no report"),
    ],
)
def test_a_cell_says_what_came_of_it(cell: dict[str, Any] | None, words: str) -> None:
    """In a few words."""
    assert matrix.describe(cell) == words


def test_the_page_says_what_has_not_been_run(tmp_path: Path) -> None:
    """A package in its row, a release of which there is no row below the table."""
    file = tmp_path / "matrix.json"
    matrix.note("1.18.0", "hpu-core", PASSED, file)
    text = matrix.page({"1.18.0": "2.4.0", "1.19.0": "2.5.1"}, ["hpu-core", "hpu-ddp"], matrix.read(file))

    assert "| 2 passed, 1 skipped | not run |" in text
    assert "| 1.19.0 |" not in text
    assert "nothing has been run: 1.19.0." in text


def test_the_page_says_why_a_package_was_skipped(tmp_path: Path) -> None:
    """Below the table."""
    file = tmp_path / "matrix.json"
    matrix.note("1.18.0", "hpu-core", {"outcome": "skip", "reason": "no torch"}, file)

    assert "- hpu-core on 1.18.0: no torch." in matrix.page({"1.18.0": "2.4.0"}, ["hpu-core"], matrix.read(file))


def test_the_page_is_what_was_noted() -> None:
    """docs/matrix.md follows from docs/matrix.json."""
    releases, packages = matrix.shown(constraints.load())

    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.page(releases, packages, matrix.read())
