"""The first hour on a card that behaves otherwise, played on the simulator: the report names what was changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import mutations
import pytest

BUILD = Path(__file__).parent / "patched_build"
CHANGED = (
    "all-sums-are-float32",
    "clipping-does-nothing",
    "hpu.empty_cache-in-absent-memory-functions",
    "no-bf16",
    "current-device-is-1",
    "synchronize-takes-a-device",
    "two-generators",
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_report_names_changed_behaviours(tmp_path: Path) -> None:
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
    entries = json.loads((folder / "report.json").read_text(encoding="utf-8"))["entries"]
    differing = {entry["id"] for entry in entries if entry["state"] == "differs"}
    assert differing == {name.partition("/")[0] for mutation in CHANGED for name in mutations.MUTATIONS[mutation]}
