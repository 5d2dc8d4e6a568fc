"""The command on simulated cards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpu_doctor.verify import command, schema


def verify(folder: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command on two simulated cards."""
    return subprocess.run(
        [sys.executable, "-m", "hpu_doctor", "verify", "--out", str(folder), *options],
        env={**os.environ, "HPU_SIM_DEVICES": "2", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def read(folder: Path) -> schema.Report:
    """Return the report in a folder."""
    return schema.parse((folder / "report.json").read_text(encoding="utf-8"))


@pytest.mark.timeout(900)
def test_all_quick_assumptions_hold_on_the_simulator(tmp_path: Path) -> None:
    done = verify(tmp_path / "report", "--quick", "--fork")

    assert done.returncode == 0, done.stdout + done.stderr
    report = read(tmp_path / "report")
    assert [entry["id"] for entry in report["entries"] if entry["state"] == "differs"] == []
    assert report["counts"]["holds"] > 150


def test_nothing_is_written_outside_the_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    names = [part for name in ("memory-stats-keys", "mark-step-returns-nothing") for part in ("--only", name)]

    # The compiled device is the simulator's, in a folder of this user.
    cache = os.environ.get("HPU_SIM_CACHE") or str(Path.home() / ".cache" / "hpu-sim")
    done = verify(tmp_path / "report", "--fork", *names, HOME=str(home), HPU_SIM_CACHE=cache)

    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"home", "report"}
    assert list(home.iterdir()) == []
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"report.json", "report.txt", "report.html"}


def test_folder_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "old.txt").touch()

    done = verify(tmp_path)

    assert done.returncode == 2
    assert "`--out` must be a new or empty folder" in done.stderr


def test_unknown_id() -> None:
    with pytest.raises(ValueError, match="`--only` must be an id of the register, got 'no-such'"):
        command.choose(["no-such"])


def test_quick_leaves_out_slow_programs() -> None:
    assert "compiled-module-agrees" not in {assumption.id for assumption in command.choose(quick=True)}
