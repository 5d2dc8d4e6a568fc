"""Tests of the text reports."""

from rich.console import Console

from hpu_doctor.text_report import render_collectives


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
