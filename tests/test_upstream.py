"""Tests of tools/upstream.py."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import upstream

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("now", "last", "state", "is_worse"),
    [
        ({"a": "E: 1"}, {}, "fails, new", False),
        ({"a": "E: 1"}, {"a": "E: 0"}, "fails, as last", False),
        ({"a": "E: 1"}, {"a": ""}, "fails, passed last time", True),
        ({"a": ""}, {"a": "E: 0"}, "passes", False),
        ({}, {"a": "E: 0"}, "is gone", False),
    ],
)
def test_comparison(now: dict[str, str], last: dict[str, str], state: str, is_worse: bool) -> None:
    lines, worse = upstream.compare(now, last)

    assert [line.startswith(state) for line in lines] == [True]
    assert worse == is_worse


def test_what_passes_as_last_time_has_no_line() -> None:
    assert upstream.compare({"a": ""}, {"a": ""}) == ([], False)


def test_scripts_and_tests_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(upstream, "_RUN", (sys.executable,))
    scripts, tests, results = tmp_path / "examples", tmp_path / "tests", tmp_path / "results.json"
    for folder in (scripts, tests):
        folder.mkdir()
    (scripts / "good.py").write_text("if __name__ == '__main__':\n    pass\n")
    (scripts / "bad.py").write_text("if __name__ == '__main__':\n    raise ValueError('no card')\n")
    (scripts / "helper.py").write_text("raise AssertionError\n")
    (tests / "test_a.py").write_text("def test_good(): pass\ndef test_bad(): raise KeyError('x')\n")
    command = ["--results", str(results), str(scripts), str(tests)]

    assert upstream.main(command) == 0
    (scripts / "good.py").write_text("if __name__ == '__main__':\n    raise SystemExit(3)\n")
    assert upstream.main(command) == 1

    lines = [line for line in capsys.readouterr().out.splitlines() if "fail" in line]
    assert [" ".join(line.split()) for line in lines] == [
        "fails, new bad.py: ValueError: no card",
        "examples: 1 passed, 1 failed",
        "fails, new test_a::test_bad: KeyError: 'x'",
        "tests: 1 passed, 1 failed",
        "fails, as last bad.py: ValueError: no card",
        "fails, passed last time good.py: exit code 3",
        "examples: 0 passed, 2 failed",
        "fails, as last test_a::test_bad: KeyError: 'x'",
        "tests: 1 passed, 1 failed",
    ]
