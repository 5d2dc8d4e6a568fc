"""From the records of a run's processes to one report."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import select
import time
from typing import TYPE_CHECKING, Final

from hpu_sim.report.schema import SCHEMA_VERSION, RankRecord, Report, from_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

#: Seconds that ranks get to end after the program that started them has.
EXIT_TIMEOUT: Final = 10.0


def merge_records(folder: Path, command: Sequence[str], exit_code: int | None) -> Report:
    """Return the report of the records in a folder.

    Args:
        folder: The folder that ``HPU_SIM_REPORT`` named.
        command: The program and its arguments.
        exit_code: Its exit code, negative for a signal; None where it is not known.

    Raises:
        ValueError: If a record cannot be read.
    """
    records = sorted(read_records(folder), key=lambda record: (record.rank, record.pid))
    expected = max((record.world_size for record in records), default=0)
    return Report(
        schema_version=SCHEMA_VERSION,
        simulated=True,
        command=tuple(command),
        exit_code=exit_code,
        created=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        ranks=tuple(records),
        missing_ranks=tuple(sorted(set(range(expected)) - {record.rank for record in records})),
    )


def read_records(folder: Path) -> list[RankRecord]:
    """Return the records in a folder, in no order.

    Raises:
        ValueError: If a record cannot be read.
    """
    return [_read_record(path) for path in folder.glob("process-*.json")]


def _read_record(path: Path) -> RankRecord:
    try:
        return from_dict(RankRecord, json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"the record {path} cannot be read: {error}") from error


def wait_for_processes(folder: Path, timeout: float = EXIT_TIMEOUT) -> None:
    """Wait until the processes that have not ended their records yet are gone, however they end.

    A launcher may end before its ranks do, and they write their records at their very end.

    Args:
        folder: The folder of the records.
        timeout: Seconds to wait, all in all.
    """
    deadline = time.monotonic() + timeout
    for pid in [record.pid for record in read_records(folder) if record.state == "running"]:
        _wait_for_process(pid, deadline)


def _wait_for_process(pid: int, deadline: float) -> None:
    # It is gone, or this system cannot wait for processes that are not children.
    with contextlib.suppress(OSError, AttributeError):
        descriptor = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        finally:
            os.close(descriptor)


def write(report: Report, paths: Iterable[Path]) -> None:
    """Write a report.

    Args:
        report: The report.
        paths: Files to write, each in the format that its suffix names: ``.html`` or ``.json``.

    Raises:
        OSError: If a file cannot be written.
    """
    from hpu_sim.report.html import render
    from hpu_sim.report.schema import to_dict

    for path in paths:
        text = render(report) if path.suffix == ".html" else json.dumps(to_dict(report), indent=1) + "\n"
        path.write_text(text, encoding="utf-8")


def check_report_path(path: Path) -> None:
    """Check that a report can be written, before there is one.

    Raises:
        ValueError: If the suffix is neither ``.html`` nor ``.json``, the folder does not exist, or the file cannot be
            written.
    """
    if path.suffix not in {".html", ".json"}:
        raise ValueError(f"`report` must be a path that ends in .html or .json, got {str(path)!r}")
    if not path.parent.is_dir():
        raise ValueError(f"`report` must be a path in a folder that exists, there is none at {str(path.parent)!r}")
    exists = path.exists()
    try:
        # For appending, so that an older report stays until there is a newer one.
        with path.open("a", encoding="utf-8"):
            pass
        if not exists:
            path.unlink()
    except OSError as error:
        raise ValueError(
            f"`report` must be a path that can be written, got {str(path)!r} ({error.strerror})"
        ) from error
