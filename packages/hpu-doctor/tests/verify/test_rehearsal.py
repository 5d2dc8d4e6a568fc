"""The first hour on a card that behaves otherwise, played on the simulator: the report names what was changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mutations
import pytest

import verification
from hpu_doctor.verify.report import read

BUILD = Path(__file__).parent / "patched_build"
CHANGED = (
    "all-sums-are-float32",
    "casts-round-down",
    "dropout-draws-and-does-not-scale",
    "clipping-does-nothing",
    "hpu.empty_cache-in-absent-memory-functions",
    "no-bf16",
    "no-peers",
    "init-does-nothing",
    "synchronize-takes-a-device",
    "two-generators",
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_report_names_ten_changed_behaviours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "report"
    environ = {
        **os.environ,
        "HPU_SIM_DEVICES": "2",
        "PYTHONPATH": os.pathsep.join([str(BUILD), os.environ.get("PYTHONPATH", "")]),
        "VERIFY_MUTATIONS": ",".join(CHANGED),
    }
    command = [sys.executable, "-m", "hpu_doctor", "verify", "--out", str(folder)]

    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stdout + done.stderr
    found = read(folder)
    differing = {entry["id"] for entry in found["entries"] if entry["state"] == "differs"}
    assert differing == {name.partition("/")[0] for mutation in CHANGED for name in mutations.MUTATIONS[mutation]}

    # The record that follows from it.
    monkeypatch.setattr(verification, "RECORD", tmp_path / "record.md")
    verification.RECORD.touch()
    corrections = verification.record(folder)

    assert {line.partition(":")[0] for line in corrections} == differing
    written = verification.RECORD.read_text(encoding="utf-8")
    assert "## simulated GAUDI2" in written
    assert all(name in written for name in differing)
