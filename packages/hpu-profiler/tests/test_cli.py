"""Command line of `hpu-profiler`."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from packaging.version import Version

from hpu_profiler.cli import main

from .trace_builder import TraceBuilder

# Before 8.2, click's runner merges stdout and stderr by default.
_SEPARATE: dict[str, Any] = {"mix_stderr": False} if Version(metadata.version("click")) < Version("8.2") else {}
_RUNNER = CliRunner(**_SEPARATE)


@pytest.fixture
def traces(builder: TraceBuilder) -> Path:
    """Directory with a trace of two steps."""
    path = builder.write(
        builder.step(0, 0, 10),
        builder.step(1, 10, 10),
        builder.operator("aten::mm", 1, 3, 1),
        builder.device_event("aten::mm", 2, 4, "MME", external_id=1),
        hpu_profiler={"rank": 0},
    )
    return path.parent


def _report(*arguments: object) -> Result:
    return _RUNNER.invoke(main, ["report", *map(str, arguments)])


def test_tables_are_printed(traces: Path) -> None:
    result = _report(traces)

    assert result.exit_code == 0, result.output
    assert "Operators by time on the card" in result.stdout


def test_json_has_stable_keys(traces: Path) -> None:
    report = json.loads(_report(traces, "--json").stdout)

    assert list(report) == ["schema_version", "simulated", "predicted", "stages"]
    assert report["schema_version"] == 1
    (stage,) = report["stages"]
    assert stage["ranks"][0]["step_time"] == 10
    assert stage["ranks"][0]["idle_fraction"] == 0.8
    assert stage["operators"][0]["device_time"] == 4


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_page_has_the_report(arguments: tuple[str, ...], traces: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    result = _report(traces, "--html", page, *arguments)

    assert result.exit_code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "The card waits" in page.read_text()
    assert (f"Wrote {page}" in result.stdout) is not bool(arguments)


@pytest.mark.parametrize("content", [None, "{"], ids=["absent", "truncated"])
def test_unreadable_trace_is_a_one_line_error(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.pt.trace.json"
    if content is not None:
        path.write_text(content)

    result = _report(path)

    assert result.exit_code == 2
    assert result.stderr.startswith("hpu-profiler: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_predicted_times_are_not_compared_with_measured_ranks(traces: Path, builder: TraceBuilder) -> None:
    builder.write(name="plan.pt.trace.json", deviceProperties=[{"name": "GAUDI2", "predicted": True}])

    result = _report(traces)

    assert result.exit_code == 2
    assert "must have either predicted or measured times" in result.stderr
