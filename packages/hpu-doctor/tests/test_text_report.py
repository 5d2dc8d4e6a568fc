"""Tests of the text reports."""

from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from hpu_doctor.checks import Check
from hpu_doctor.comparison import compare
from hpu_doctor.machine import Machine
from hpu_doctor.text_report import render_checks, render_collectives, render_comparison


@pytest.mark.parametrize(("is_done", "state"), [(True, "OK"), (False, "Unknown")])
def test_check_without_facts_is_not_ok(is_done: bool, state: str, make_machine: Callable[..., Machine]) -> None:
    console = Console(record=True, width=100)
    render_checks(console, make_machine(), (Check(name="driver", detail="text", is_done=is_done),))

    assert state in console.export_text().split()


def test_report_names_the_faults() -> None:
    console = Console(record=True, width=100)
    issue = {"kind": "wrong", "ranks": [1], "message": "rank 1 sends wrong values"}
    rank = {"seconds": {"all-reduce": 0.001}, "link_seconds": {"1": 0.002}}
    report = {"world_size": 2, "bytes": 1 << 20, "ok": False, "findings": [issue], "ranks": [rank, None]}
    render_collectives(console, report)
    text = console.export_text()

    assert "all-reduce       1.00 to 1.00 ms" in text
    assert "Error: rank 1 sends wrong values" in text
    assert "All results are correct" not in text


def _report(index: int, *problems: str, driver: str = "1.24.0") -> dict[str, Any]:
    entries = [{"blocks_training": True, "message": message, "hint": "Mend it."} for message in problems]
    return {
        "host": f"node-{index:03}",
        "boot_id": f"{index}",
        "versions": {"driver": driver},
        "checks": [{"name": "logs", "problems": entries}],
    }


def _compared(reports: list[dict[str, Any]]) -> str:
    console = Console(record=True, width=80)
    render_comparison(console, compare(reports))
    return console.export_text()


def test_comparison_of_512_machines_names_the_odd_ones() -> None:
    reports = [_report(index) for index in range(512)]
    reports[77] = _report(77, "a card is in use by pid 4711")
    reports[300:303] = [_report(index, driver="1.23.0") for index in range(300, 303)]
    text = _compared(reports)

    assert text.startswith("512 machines: node-[000-511]\nError: driver differs\n")
    assert "1.24.0 509 machines: node-[000-299,303-511]\n1.23.0 3 machines: node-[300-302]" in text
    assert "Error: node-077: a card is in use by pid 4711\n" in text
    assert "508 machines can train together without node-[077,300-302].\n" in text


def test_comparison_of_machines_that_all_differ_fits_on_a_page() -> None:
    words = [f"{chr(97 + first)}{chr(97 + second)}" for first in range(23) for second in range(23)][:512]
    reports = [_report(index, f"problem {word}", driver=word) for index, word in enumerate(words)]
    text = _compared(reports)

    assert text.count("\n") < 50
    assert "... and 506 more values, which `--json` lists" in text
    assert "... and 502 more problems, which `--json` lists" in text
    assert "can train together" not in text


def test_report_on_many_faults_fits_on_a_page() -> None:
    console = Console(record=True, width=100)
    issues = [{"kind": "slow", "ranks": [rank], "message": f"rank {rank} is slow"} for rank in range(1000)]
    render_collectives(console, {"world_size": 1024, "bytes": 1, "ok": True, "findings": issues, "ranks": []})
    text = console.export_text()

    assert text.count("Note: ") == 20
    assert "... and 980 more faults, which `--json` lists" in text
