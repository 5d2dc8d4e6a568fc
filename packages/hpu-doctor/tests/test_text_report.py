"""Tests of the text reports."""

from collections.abc import Callable
from typing import Any

import pytest

from hpu_doctor.checks import Check
from hpu_doctor.comparison import compare
from hpu_doctor.diagnosis import Problem
from hpu_doctor.machine import Machine
from hpu_doctor.text_report import format_checks, format_collectives, format_comparison


@pytest.mark.parametrize(
    ("check", "state", "end"),
    [
        ({}, "OK", "No problem found."),
        ({"problems": (Problem.note("m", "h"),)}, "Note", "Note: m\n  h\nTraining can start; see the notes."),
        ({"problems": (Problem.error("m", "h"),)}, "Error", "Error: m\n  h\nTraining cannot start."),
    ],
)
def test_state_of_a_check(check: dict[str, Any], state: str, end: str, make_machine: Callable[..., Machine]) -> None:
    text = format_checks(make_machine(), (Check(name="driver", detail="text", **check),))

    assert text == f"Checks of node-1\n{state:5}  driver text\n\n{end}"


def test_text_is_plain(make_machine: Callable[..., Machine]) -> None:
    """A message of a driver may have anything."""
    text = format_checks(make_machine(host="caf\u00e9\x1b"), (Check(name="driver", detail="a\tb"),))

    assert text.isascii()
    assert text.startswith("Checks of caf??\n")


def test_report_on_collectives_names_the_faults() -> None:
    issue = {"kind": "wrong", "ranks": [1], "message": "rank 1 sends wrong values"}
    rank = {"seconds": {"all-reduce": 0.001}, "link_seconds": {"1": 0.002}}
    report = {"world_size": 2, "bytes": 1 << 20, "ok": False, "findings": [issue], "ranks": [rank, None]}

    assert format_collectives(report) == (
        "2 ranks, 1 MiB each\nall-reduce       1.00 to 1.00 ms\nsend and receive 2.00 to 2.00 ms\n"
        "Error: rank 1 sends wrong values"
    )


def test_report_on_many_faults_fits_on_a_page() -> None:
    issues = [{"kind": "slow", "ranks": [rank], "message": f"rank {rank} is slow"} for rank in range(1000)]
    text = format_collectives({"world_size": 1024, "bytes": 1, "ok": True, "findings": issues, "ranks": []})

    assert text.count("Note: ") == 20
    assert "... and 980 more faults, which `--json` lists" in text
    assert text.endswith("All results are correct.")


def _report(index: int, *problems: str, driver: str = "1.24.0") -> dict[str, Any]:
    entries = [{"blocks_training": True, "message": message, "hint": "Mend it."} for message in problems]
    return {
        "host": f"node-{index:03}",
        "boot_id": f"{index}",
        "versions": {"driver": driver},
        "checks": [{"name": "logs", "problems": entries}],
    }


def test_comparison_of_512_machines_names_the_odd_ones() -> None:
    reports = [_report(index) for index in range(512)]
    reports[77] = _report(77, "a card is in use by pid 4711")
    reports[300:303] = [_report(index, driver="1.23.0") for index in range(300, 303)]

    assert format_comparison(compare(reports)) == (
        "512 machines: node-[000-511]\n"
        "Error: driver differs\n"
        "1.24.0 509 machines: node-[000-299,303-511]\n"
        "1.23.0 3 machines: node-[300-302]\n"
        "Error: node-077: a card is in use by pid 4711\n"
        "  Mend it.\n"
        "508 machines can train together without node-[077,300-302].\n"
        "Training cannot start on these machines together."
    )


def test_comparison_of_machines_that_all_differ_fits_on_a_page() -> None:
    text = format_comparison(compare([_report(index, f"problem {index}", driver=f"1.{index}") for index in range(512)]))

    assert text.count("\n") < 50
    assert "... and 506 more values, which `--json` lists" in text
    assert "... and 502 more problems, which `--json` lists" in text
    assert "can train together" not in text


def test_comparison_of_equal_machines() -> None:
    text = format_comparison(compare([_report(1), _report(2)]))

    assert text == "2 machines: node-001,node-002\nThe machines have the same versions."
