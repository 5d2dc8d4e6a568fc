"""Tests of the comparison of machines."""

import json
from typing import Any

import pytest

from hpu_doctor.comparison import compare, parse_reports


def _report(host: str, *problems: dict[str, Any], **versions: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "host": host,
        "boot_id": host,
        "versions": {"torch": "2.9.0", **versions},
        "checks": [{"name": "logs", "problems": list(problems)}],
    }


def _problem(message: str, *, blocks_training: bool) -> dict[str, Any]:
    return {"blocks_training": blocks_training, "message": message, "hint": "Mend it."}


def test_value_of_most_machines_is_first() -> None:
    report = compare([_report("node-1", torch="2.7.1"), _report("node-2"), _report("node-3")])

    assert not report["can_train"]
    (difference,) = report["differences"]
    assert difference["name"] == "torch"
    assert list(difference["hosts"].items()) == [("2.9.0", ["node-2", "node-3"]), ("2.7.1", ["node-1"])]
    assert json.loads(json.dumps(report)) == report


def test_problem_that_blocks_training_is_first() -> None:
    note, error = _problem("a note", blocks_training=False), _problem("an error", blocks_training=True)
    report = compare([_report("node-1", note, error), _report("node-2", note)])

    assert not report["can_train"]
    assert report["problems"] == {"node-1": [error, note], "node-2": [note]}


def test_ranks_of_one_machine_count_once() -> None:
    assert compare([_report("node-1")] * 2)["hosts"] == ["node-1"]


def test_machines_of_one_host_name_stay_apart() -> None:
    report = compare([{**_report("localhost", driver=f"1.2{boot}"), "boot_id": boot} for boot in "34"])

    assert report["hosts"] == ["localhost", "localhost (2)"]
    assert report["differences"][0]["name"] == "driver"


@pytest.mark.parametrize("form", ["{}", "warning\n{{broken\n{}\n"])
def test_report_among_other_lines(form: str) -> None:
    report = json.dumps(_report("node-1"), indent=2 if form == "{}" else None)

    assert [report["host"] for report in parse_reports(form.format(report))] == ["node-1"]


@pytest.mark.parametrize("text", ["", "no report", '{"schema_version": 2}', '{"schema_version": 1}', "[1]"])
def test_text_without_a_report(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_reports(text)
