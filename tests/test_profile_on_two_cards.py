"""Profiles of two simulated cards, and the reports on their traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpu_testing.fork_server import forks

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
# A fixture may compile the simulated device first.
pytestmark = pytest.mark.timeout(900)


def _run(folder: Path, script: Path, *arguments: str) -> Path:
    """Run a script on two simulated cards; return the folder of its traces."""
    traces = folder / "traces"
    environment = os.environ | {"HPU_SIM_RUNTIME_DIR": str(folder / "cards")}
    command = [str(BIN / "hpu-sim"), "run", "--devices", "2", str(script), str(traces), *arguments]
    with forks():
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return traces


def _report(traces: Path) -> dict[str, Any]:
    """Return the JSON report on traces, after an HTML report is written next to them."""
    command = [str(BIN / "hpu-profiler"), "report", str(traces), "--json", "--html", str(traces / "report.html")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    return content


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of the program with four faults, of which one is a slow rank 1."""
    return _run(tmp_path_factory.mktemp("faults"), Path(__file__).parent / "programs" / "profile_faults.py")


@pytest.fixture(scope="module")
def report(traces: Path) -> dict[str, Any]:
    """JSON report on the traces."""
    return _report(traces)


def test_each_rank_writes_a_trace_and_a_summary(traces: Path) -> None:
    assert sorted(path.name.split(".")[0] for path in traces.glob("*.pt.trace.json")) == [
        "fit-summary-0-training",
        "fit-summary-1-training",
    ]
    assert all("HPU time" in (traces / f"fit-summary-{rank}.txt").read_text(encoding="utf-8") for rank in (0, 1))


def test_report_names_the_straggler(report: dict[str, Any]) -> None:
    """Steps of both ranks take the same time, because the fast one waits in the all-reduce."""
    train = report["stages"][0]
    fast, slow = train["ranks"]

    assert report["simulated"]
    assert [rank["steps"] for rank in train["ranks"]] == [3, 3]
    assert train["straggler"] == "rank 1"
    assert fast["exposed_comm"] > slow["exposed_comm"]
    assert fast["step_time_excl_comm_wait"] < slow["step_time_excl_comm_wait"]
    assert {each["name"] for each in fast["collectives"]} == {"allreduce"}


def test_injected_faults_are_named_with_their_lines(report: dict[str, Any]) -> None:
    """The two that cost most come first; the simulator neither compiles nor has a queue to wait for."""
    found = report["stages"][0]["findings"]
    lines = {each["kind"]: each["location"].rpartition(" ")[2] for each in found}

    assert [each["kind"] for each in found[:2]] == ["straggler", "data loading"]
    assert (
        lines.items()
        >= {
            "straggler": "augment",
            "data loading": "__getitem__",
            "host sync": "training_step",
            "changing shapes": "loss",
        }.items()
    )
    assert all(each["simulated"] for each in found)


def test_training_is_the_headline_although_validation_is_in_its_trace(report: dict[str, Any]) -> None:
    train, validate = report["stages"]

    assert (train["stage"], validate["stage"]) == ("train", "validate")
    assert [rank["steps"] for rank in train["ranks"]] == [3, 3]
    assert "allgather" not in {each["name"] for rank in train["ranks"] for each in rank["collectives"]}
