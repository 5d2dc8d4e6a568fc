"""The example of profiling, as a person runs it on two cards, and the report on it."""

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
    """The folder that the example leaves, the second rank being slow."""
    folder = tmp_path_factory.mktemp("traces")
    environment = os.environ | {"HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards"))}
    script = str(ROOT / "examples" / "profile_digits.py")
    command = [str(BIN / "hpu-sim"), "run", "--devices", "2", script, str(folder), "--slow-rank", "1"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def report(traces: Path) -> dict[str, Any]:
    """What the command says of it, with a page beside."""
    command = [str(BIN / "hpu-profiler"), "report", str(traces), "--json", "--html", str(traces / "report.html")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def test_each_rank_leaves_a_trace_and_a_summary(traces: Path) -> None:
    """In files of their own."""
    assert sorted(path.name.split(".")[0] for path in traces.glob("*.pt.trace.json")) == [
        "fit-summary-0-training",
        "fit-summary-1-training",
    ]
    assert all("HPU time" in (traces / f"fit-summary-{rank}.txt").read_text(encoding="utf-8") for rank in (0, 1))


def test_the_report_names_the_slow_rank(report: dict[str, Any]) -> None:
    """Though both take the same time for a step."""
    assert report["simulated"]
    assert [trace["steps"] for trace in report["traces"]] == [3, 3]
    assert report["slowest"] == "rank 1"


def test_the_quick_rank_waits_in_collectives(report: dict[str, Any]) -> None:
    """For the slow one, which finds it there already."""
    quick, slow = report["traces"]

    assert quick["collective"] > slow["collective"]
    assert quick["own_time"] < slow["own_time"]
    assert {each["name"] for each in quick["collectives"]} == {"hccl:allreduce"}


def test_the_page_shows_both_ranks(report: dict[str, Any], traces: Path) -> None:
    """Side by side."""
    words: list[str] = []
    parser = HTMLParser()
    parser.handle_data = lambda data: words.extend(data.split())  # type: ignore[method-assign] # All that is needed.
    parser.feed((traces / "report.html").read_text(encoding="utf-8"))

    text = " ".join(words)
    assert "rank 0" in text
    assert "rank 1 slowest" in text
    assert len(report["findings"]) >= 2
