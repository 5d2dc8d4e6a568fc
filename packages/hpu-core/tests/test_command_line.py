"""Tests of the habits that all commands share."""

import json
from pathlib import Path

import pytest

from hpu_core.command_line import mark_json, write_json


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--json"], ["--json=-"]),
        (["compare", "--json", "a.json"], ["compare", "--json=-", "a.json"]),
        (["--json=a.json", "--jsonl"], ["--json=a.json", "--jsonl"]),
    ],
)
def test_only_a_file_after_an_equals_sign_is_written(arguments: list[str], expected: list[str]) -> None:
    assert mark_json(arguments) == expected


def test_report_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = {"schema_version": 1, "hosts": ["a"]}
    write_json(report, "-", indent=None)
    write_json(report, str(tmp_path / "report.json"))

    assert capsys.readouterr().out == '{"schema_version": 1, "hosts": ["a"]}\n'
    assert json.loads((tmp_path / "report.json").read_text()) == report
