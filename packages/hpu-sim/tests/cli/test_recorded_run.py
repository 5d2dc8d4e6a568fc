"""Tests of the runner of a recorded command."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from hpu_sim.cli import recorded_run

if TYPE_CHECKING:
    from pathlib import Path


def _run(program: str, *reports: Path, quiet: bool = False) -> int:
    return recorded_run.run([sys.executable, "-S", "-c", program], os.environ, reports, shown=["train.py"], quiet=quiet)


def test_command_gets_a_folder_that_is_removed(capfd: pytest.CaptureFixture[str]) -> None:
    assert _run("import os; folder = os.environ['HPU_SIM_REPORT']; print(folder, os.path.isdir(folder))") == 0

    folder, existed = capfd.readouterr().out.split()
    assert existed == "True"
    assert not os.path.exists(folder)  # noqa: PTH110 - the output is a str


@pytest.mark.parametrize(("exit_code", "expected"), [(0, recorded_run.REPORT_FAILED), (5, 5)])
def test_unwritable_report_fails_unless_the_command_failed(
    exit_code: int, expected: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gone" / "report.json"

    assert _run(f"raise SystemExit({exit_code})", path, quiet=True) == expected
    assert capfd.readouterr().err.startswith("hpu-sim: cannot write the report: ")


def test_invalid_record_fails(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import os; open(os.environ['HPU_SIM_REPORT'] + '/process-1.json', 'w').close()"

    assert _run(program) == recorded_run.REPORT_FAILED
    error = capfd.readouterr().err
    assert "invalid record" in error
    assert "process-1.json" in error
