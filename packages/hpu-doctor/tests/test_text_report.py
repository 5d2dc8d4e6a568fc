"""Tests of the text reports."""

from collections.abc import Callable

import pytest
from rich.console import Console

from hpu_doctor.checks import Check
from hpu_doctor.machine import Machine
from hpu_doctor.text_report import render_checks, render_collectives


@pytest.mark.parametrize(("is_done", "state"), [(True, "OK"), (False, "Unknown")])
def test_check_without_facts_is_not_ok(is_done: bool, state: str, make_machine: Callable[..., Machine]) -> None:
    console = Console(record=True, width=100)
    render_checks(console, make_machine(), (Check(name="driver", detail="text", is_done=is_done),))

    assert state in console.export_text().split()


def test_report_names_the_faults() -> None:
    console = Console(record=True, width=100)
    finding = {"kind": "wrong", "ranks": [1], "message": "rank 1 sends wrong values"}
    rank = {"seconds": {"all-reduce": 0.001}, "link_seconds": {"1": 0.002}}
    report = {"world_size": 2, "bytes": 1 << 20, "ok": False, "findings": [finding], "ranks": [rank, None]}
    render_collectives(console, report)
    text = console.export_text()

    assert "all-reduce       1.00 to 1.00 ms" in text
    assert "Error: rank 1 sends wrong values" in text
    assert "All results are correct" not in text
