"""Merging of the records of all processes into one report, and writing of report files."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import select
import time
from typing import TYPE_CHECKING, Final

from hpu_sim.common.encoding import SCHEMA_VERSION, from_dict
from hpu_sim.report.schema import RankRecord, Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

#: Time that ranks may take to exit after the command, in seconds.
EXIT_TIMEOUT: Final = 10.0


def merge_records(folder: Path, command: Sequence[str], exit_code: int | None) -> Report:
    """Merge the records in a folder into a report.

    Raises:
        ValueError: If a record is invalid.
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
    """Return the records in a folder, in arbitrary order.

    Raises:
        ValueError: If a record is invalid.
    """
    return [_read_record(path) for path in folder.glob("process-*.json")]


def _read_record(path: Path) -> RankRecord:
    try:
        return from_dict(RankRecord, json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"invalid record {path}: {error}") from error


def wait_for_processes(folder: Path, timeout: float = EXIT_TIMEOUT) -> None:
    """Wait until all processes with a record in state "running" have exited.

    A launcher may exit before its ranks, which write their final records at exit.
    """
    deadline = time.monotonic() + timeout
    for pid in [record.pid for record in read_records(folder) if record.state == "running"]:
        _wait_for_process(pid, deadline)


def _wait_for_process(pid: int, deadline: float) -> None:
    # OSError: the process has exited. AttributeError: this Python has no pidfd_open.
    with contextlib.suppress(OSError, AttributeError):
        descriptor = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        finally:
            os.close(descriptor)


def write_report(report: Report, paths: Iterable[Path]) -> None:
    """Write a report to files, by their suffix: ``.html`` or ``.json``.

    Raises:
        OSError: If a file cannot be written.
    """
    from hpu_sim.report.view import document

    for path in paths:
        text = document(report).html() if path.suffix == ".html" else to_json(report)
        path.write_text(text, encoding="utf-8")


def to_json(report: Report) -> str:
    """Return the JSON of a report, with its findings."""
    from hpu_sim.report.findings import summaries

    return json.dumps({**dataclasses.asdict(report), "findings": summaries(report)}, indent=1) + "\n"


def check_report_path(path: Path) -> None:
    """Raise unless a report can be written to a path.

    Raises:
        ValueError: If the suffix is neither ``.html`` nor ``.json``, or the file or its folder cannot be written to.
    """
    if path.suffix not in {".html", ".json"}:
        raise ValueError(f"`report` must end in .html or .json, got {str(path)!r}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"`report` must be a file that can be written, got {str(path)!r}")
