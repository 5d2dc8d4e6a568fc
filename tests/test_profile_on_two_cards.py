"""The profiling example on two simulated cards, and the report on its traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output directory of the example with a slow rank 1."""
    folder = tmp_path_factory.mktemp("traces")
    environment = os.environ | {"HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards"))}
    script = str(ROOT / "examples" / "profile_digits.py")
    command = [str(BIN / "hpu-sim"), "run", "--devices", "2", script, str(folder), "--slow-rank", "1"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def report(traces: Path) -> dict[str, Any]:
    """JSON report on the traces; an HTML report is written next to them."""
    command = [str(BIN / "hpu-profiler"), "report", str(traces), "--json", "--html", str(traces / "report.html")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_each_rank_writes_a_trace_and_a_summary(traces: Path) -> None:
    assert sorted(path.name.split(".")[0] for path in traces.glob("*.pt.trace.json")) == [
        "fit-summary-0-training",
        "fit-summary-1-training",
    ]
    assert all("HPU time" in (traces / f"fit-summary-{rank}.txt").read_text(encoding="utf-8") for rank in (0, 1))


def test_report_names_the_straggler(report: dict[str, Any]) -> None:
    """Steps of both ranks take the same time, because an all-reduce synchronizes them."""
    assert report["simulated"]
    assert [trace["steps"] for trace in report["traces"]] == [3, 3]
    assert report["straggler"] == "rank 1"


def test_fast_rank_waits_in_collectives(report: dict[str, Any]) -> None:
    fast, slow = report["traces"]

    assert fast["exposed_comm"] > slow["exposed_comm"]
    assert fast["step_time_excl_comm_wait"] < slow["step_time_excl_comm_wait"]
    assert {each["name"] for each in fast["collectives"]} == {"hccl:allreduce"}


def test_html_report_shows_both_ranks(report: dict[str, Any], traces: Path) -> None:
    words: list[str] = []
    parser = HTMLParser()
    parser.handle_data = lambda data: words.extend(data.split())  # type: ignore[method-assign] # All that is needed.
    parser.feed((traces / "report.html").read_text(encoding="utf-8"))

    text = " ".join(words)
    assert "rank 0" in text
    assert "rank 1 straggler" in text
    assert len(report["recommendations"]) >= 2
