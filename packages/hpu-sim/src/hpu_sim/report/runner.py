"""Run a program with recording on, and report when it has ended, however it ended."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_sim import signal_forwarding
from hpu_sim.config import REPORT_DETAIL_VARIABLE, REPORT_VARIABLE
from hpu_sim.report import merge, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Exit code where the program ended well and its report could not be written.
REPORT_FAILED = 1


def run(command: list[str], environment: Mapping[str, str], reports: Sequence[Path], *, quiet: bool) -> int:
    """Run a command, then write the reports and show the table on stderr.

    Args:
        command: Path of the program and its arguments.
        environment: All its variables.
        reports: Files to write, checked by :func:`hpu_sim.report.merge.check_writable`; with none, only totals are
            recorded, which costs the program nothing.
        quiet: Whether to leave the table out.

    Returns:
        The program's exit code, negative for a signal; 1 where the program ended well and its report could not be made.
    """
    # Absolute, because the program may change its folder, and this one's is where the user wants the files.
    reports = [path.absolute() for path in reports]
    with tempfile.TemporaryDirectory(prefix="hpu-sim-report-") as folder:
        recording = {REPORT_VARIABLE: folder, REPORT_DETAIL_VARIABLE: "lines" if reports else "counts"}
        exit_code = signal_forwarding.run(command, {**environment, **recording})
        try:
            merge.wait_for_processes(Path(folder))
            report = merge.merge_records(Path(folder), command[1:], exit_code)
            if not quiet:
                sys.stderr.write(text.render(report))
            merge.write(report, reports)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"hpu-sim: there is no report: {error}\n")
            return exit_code or REPORT_FAILED
    return exit_code
