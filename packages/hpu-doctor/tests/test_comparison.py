"""Tests of the comparison of machines."""

import json
from typing import Any

import pytest

from hpu_doctor.comparison import compare, parse_reports, to_json


def _report(host: str, *, problems: tuple[dict[str, Any], ...] = (), **versions: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "host": host,
        "boot_id": host,
        "versions": {"torch": "2.9.0", **versions},
        "checks": [{"name": "logs", "problems": list(problems)}],
    }


def _problem(message: str, *, blocks_training: bool) -> dict[str, Any]:
    return {"blocks_training": blocks_training, "message": message, "hint": "Mend it."}


def test_equal_machines() -> None:
    comparison = compare([_report("node-1"), _report("node-2")])

    assert comparison.can_train
    assert comparison.hosts == ("node-1", "node-2")
    assert comparison.differences == ()


def test_value_of_most_machines_is_first() -> None:
    comparison = compare([_report("node-1", torch="2.7.1"), _report("node-2"), _report("node-3")])
    (difference,) = comparison.differences

    assert not comparison.can_train
    assert difference.name == "torch"
    assert list(difference.hosts.items()) == [("2.9.0", ("node-2", "node-3")), ("2.7.1", ("node-1",))]


def test_missing_value_differs() -> None:
    comparison = compare([_report("node-1", bridge="1.23.0.695"), _report("node-2")])

    assert dict(comparison.differences[0].hosts) == {"1.23.0.695": ("node-1",), "unknown": ("node-2",)}


def test_problem_that_blocks_training() -> None:
    note, error = _problem("a note", blocks_training=False), _problem("an error", blocks_training=True)
    comparison = compare([_report("node-1", problems=(note, error)), _report("node-2", problems=(note,))])

    assert not comparison.can_train
    assert comparison.problems["node-1"] == ((True, "an error", "Mend it."), (False, "a note", "Mend it."))


def test_ranks_of_one_machine_count_once() -> None:
    assert compare([_report("node-1")] * 2).hosts == ("node-1",)


def test_machines_of_one_host_name_stay_apart() -> None:
    comparison = compare([{**_report("localhost", driver=f"1.2{boot}"), "boot_id": boot} for boot in "34"])

    assert comparison.hosts == ("localhost", "localhost (2)")
    assert comparison.differences[0].name == "driver"
    assert not comparison.can_train


def test_json() -> None:
    report = to_json(compare([_report("node-1", torch="2.7.1"), _report("node-2")]))

    assert report["differences"] == [{"name": "torch", "hosts": {"2.7.1": ["node-1"], "2.9.0": ["node-2"]}}]
    assert json.loads(json.dumps(report)) == report


def test_indented_report() -> None:
    assert parse_reports(json.dumps(_report("node-1"), indent=2))[0]["host"] == "node-1"


def test_lines_that_are_not_reports_are_skipped() -> None:
    text = f"warning\n{{broken\n{json.dumps(_report('node-1'))}\n"

    assert [report["host"] for report in parse_reports(text)] == ["node-1"]


@pytest.mark.parametrize("text", ["", "no report", '{"schema_version": 2}', '{"schema_version": 1}', "[1]"])
def test_text_without_a_report(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_reports(text)


def test_outliers_differ_from_most_or_block_training() -> None:
    error, note = _problem("an error", blocks_training=True), _problem("a note", blocks_training=False)
    reports = [_report(f"node-{index}", problems=(note,)) for index in range(9)]
    reports += [_report("node-20", torch="2.7.1"), _report("node-30", problems=(error,))]

    assert compare(reports).different == ("node-20", "node-30")


def test_problems_that_differ_in_numbers_are_of_one_group() -> None:
    reports = [
        _report(f"node-{index}", problems=(_problem(f"in use by pid {index + 4000}", blocks_training=True),))
        for index in range(3)
    ]
    (group,) = compare(reports).group_problems()

    assert (group.message, group.hosts) == ("in use by pid 4000", ["node-0", "node-1", "node-2"])
