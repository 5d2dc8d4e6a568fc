"""Runner of a command with recording enabled and a report at the end."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_sim.device.config import REPORT_VARIABLE
from hpu_sim.process import signal_forwarding
from hpu_sim.report import merge, view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Exit code if the program succeeds and its report cannot be written.
REPORT_FAILED = 1


def run(
    command: list[str],
    environment: Mapping[str, str],
    reports: Sequence[Path],
    *,
    shown: Sequence[str],
    quiet: bool,
) -> int:
    """Run a command, then write the reports and print the summary on stderr.

    Args:
        command: Path of the program and its arguments.
        environment: Environment variables of the program.
        reports: Files to write, checked by :func:`hpu_sim.report.merge.check_report_path`.
        shown: Command line that the report shows.
        quiet: Whether to omit the summary.

    Returns:
        Exit code of the program, or the negated signal number. 1 if the program succeeds and the report fails.
    """
    with tempfile.TemporaryDirectory(prefix="hpu-sim-report-") as folder:
        exit_code = signal_forwarding.run(command, {**environment, REPORT_VARIABLE: folder})
        try:
            merge.wait_for_processes(Path(folder))
            report = merge.merge_records(Path(folder), shown, exit_code)
            if not quiet:
                sys.stderr.write(view.document(report).text())
            merge.write_report(report, reports)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"hpu-sim: cannot write the report: {error}\n")
            return exit_code or REPORT_FAILED
    return exit_code
