"""Tests of the runner of a recorded command."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from hpu_sim.cli import recorded_run
from hpu_sim.report import merge

if TYPE_CHECKING:
    from pathlib import Path


def _run(program: str, reports: list[Path], *, quiet: bool = False) -> int:
    return recorded_run.run([sys.executable, "-S", "-c", program], os.environ, reports, shown=["train.py"], quiet=quiet)


@pytest.mark.parametrize(("reports", "detail"), [(["report.json"], "lines"), ([], "counts")])
def test_command_gets_the_recording_variables(
    reports: list[str], detail: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "import os; print(os.path.isdir(os.environ['HPU_SIM_REPORT']), os.environ['HPU_SIM_REPORT_DETAIL'])"

    assert _run(program, [tmp_path / name for name in reports]) == 0
    assert capfd.readouterr().out == f"True {detail}\n"


def test_folder_of_records_is_removed(capfd: pytest.CaptureFixture[str]) -> None:
    _run("import os; print(os.environ['HPU_SIM_REPORT'])", [])

    assert not os.path.exists(capfd.readouterr().out.strip())  # noqa: PTH110 - the output is a str


@pytest.mark.parametrize(("exit_code", "expected"), [(0, recorded_run.REPORT_FAILED), (5, 5)])
def test_unwritable_report_fails_unless_the_command_failed(
    exit_code: int, expected: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gone" / "report.json"

    assert _run(f"raise SystemExit({exit_code})", [path], quiet=True) == expected
    assert capfd.readouterr().err.startswith("hpu-sim: cannot write the report: ")


@pytest.mark.parametrize(("end", "ended"), [("os.kill(os.getpid(), 15)", True), ("os._exit(1)", False)])
def test_ranks_of_a_launcher_that_a_signal_killed_are_ended(
    end: str, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one that fails may still have something to do."""
    folders: list[Path] = []
    monkeypatch.setattr(merge, "end_processes", folders.append)

    _run(f"import os; {end}", [])

    assert bool(folders) is ended


def test_invalid_record_fails(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import os; open(os.environ['HPU_SIM_REPORT'] + '/process-1.json', 'w').close()"

    assert _run(program, []) == recorded_run.REPORT_FAILED
    error = capfd.readouterr().err
    assert "invalid record" in error
    assert "process-1.json" in error
