"""Around a program that is recorded."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from hpu_sim.report import runner

if TYPE_CHECKING:
    from pathlib import Path


def _run(program: str, reports: list[Path], *, quiet: bool = False) -> int:
    return runner.run([sys.executable, "-S", "-c", program], os.environ, reports, quiet=quiet)


@pytest.mark.parametrize(("reports", "detail"), [(["report.json"], "lines"), ([], "counts")])
def test_a_program_is_told_where_and_what_to_record(
    reports: list[str], detail: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Lines only where somebody will read them."""
    program = "import os; print(os.path.isdir(os.environ['HPU_SIM_REPORT']), os.environ['HPU_SIM_REPORT_DETAIL'])"

    assert _run(program, [tmp_path / name for name in reports]) == 0
    assert capfd.readouterr().out == f"True {detail}\n"


def test_the_folder_of_records_is_removed(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is left behind."""
    _run("import os; print(os.environ['HPU_SIM_REPORT'])", [])

    assert not os.path.exists(capfd.readouterr().out.strip())  # noqa: PTH110 - a text is at hand


@pytest.mark.parametrize(("exit_code", "expected"), [(0, runner.REPORT_FAILED), (5, 5)])
def test_a_report_that_can_no_longer_be_written_is_an_error(
    exit_code: int, expected: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Unless the program had one of its own."""
    path = tmp_path / "gone" / "report.json"

    assert _run(f"raise SystemExit({exit_code})", [path], quiet=True) == expected
    assert capfd.readouterr().err.startswith("hpu-sim: there is no report: ")


def test_records_that_a_program_spoils_are_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    """It can reach them."""
    program = "import os; open(os.environ['HPU_SIM_REPORT'] + '/process-1.json', 'w').close()"

    assert _run(program, []) == runner.REPORT_FAILED
    assert "process-1.json cannot be read" in capfd.readouterr().err
