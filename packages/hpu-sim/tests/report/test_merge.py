"""Tests of merging records and of writing reports."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hpu_sim import cli
from hpu_sim.common.encoding import SCHEMA_VERSION, from_dict
from hpu_sim.report.merge import (
    merge_records,
    read_records,
    wait_for_processes,
    write_report,
)
from hpu_sim.report.schema import RankRecord, Report

from .factories import make_record, make_report, make_site

if TYPE_CHECKING:
    from pathlib import Path


def _write_records(folder: Path, *records: RankRecord) -> None:
    for index, record in enumerate(records):
        (folder / f"process-{index}.json").write_text(json.dumps(dataclasses.asdict(record)), encoding="utf-8")


def test_report_file_has_the_findings(tmp_path: Path) -> None:
    path = tmp_path / "report.json"

    write_report(make_report(make_record(sites=(make_site(),))), [path])

    (finding,) = json.loads(path.read_text(encoding="utf-8"))["findings"]
    assert finding["title"] == "Host-device synchronization in every step"
    assert finding["lines"][0].startswith("/home/me/train.py:42: every step: scalar read")


def test_records_are_sorted_by_rank_and_pid(tmp_path: Path) -> None:
    _write_records(tmp_path, make_record(rank=1, pid=7), make_record(rank=0, pid=9), make_record(rank=0, pid=8))

    report = merge_records(tmp_path, ["train.py"], 0)

    assert [(record.rank, record.pid) for record in report.ranks] == [(0, 8), (0, 9), (1, 7)]
    assert (report.simulated, report.command, report.exit_code) == (True, ("train.py",), 0)


def test_ranks_without_a_record_are_missing(tmp_path: Path) -> None:
    """The world size of the other records tells how many ranks there are."""
    _write_records(tmp_path, make_record(rank=2, world_size=4))

    assert merge_records(tmp_path, [], None).missing_ranks == (0, 1, 3)


def test_no_record_gives_an_empty_report(tmp_path: Path) -> None:
    report = merge_records(tmp_path, [], 0)

    assert (report.ranks, report.missing_ranks) == ((), ())


def test_partial_file_is_ignored(tmp_path: Path) -> None:
    """A process that is killed while it writes leaves one."""
    (tmp_path / "process-1.part").write_text("{", encoding="utf-8")

    assert read_records(tmp_path) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"rank": 0}'], ids=["cut", "list", "partial"])
def test_error_names_an_invalid_record(text: str, tmp_path: Path) -> None:
    (tmp_path / "process-1.json").write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=re.escape(f"invalid record {tmp_path / 'process-1.json'}: ")):
        read_records(tmp_path)


def test_running_processes_are_awaited(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        _write_records(tmp_path, make_record(pid=process.pid, state="running"))
        assert process.stdin is not None
        process.stdin.close()

        wait_for_processes(tmp_path, timeout=60)

        assert process.poll() == 0


def test_waiting_for_processes_times_out(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        _write_records(tmp_path, make_record(pid=process.pid, state="running"))

        wait_for_processes(tmp_path, timeout=0)

        assert process.poll() is None


def test_exited_processes_are_not_awaited(tmp_path: Path) -> None:
    """Their pids may belong to other processes by now."""
    _write_records(tmp_path, make_record(pid=1, state="exited"), make_record(pid=2**22 + 1, state="running"))
    begin = time.monotonic()

    wait_for_processes(tmp_path, timeout=3600)

    assert time.monotonic() - begin < 3600


def test_suffix_selects_the_format_of_the_report(tmp_path: Path) -> None:
    report = make_report(make_record())

    write_report(report, [tmp_path / "a.html", tmp_path / "b.json"])

    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert from_dict(Report, json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))) == report


def test_the_report_of_records_is_printed_as_json(tmp_path: Path) -> None:
    _write_records(tmp_path, make_record())

    result = CliRunner().invoke(cli.main, ["report", str(tmp_path), "--json"])

    found = json.loads(result.output)
    assert (found["schema_version"], found["ranks"][0]["pid"]) == (SCHEMA_VERSION, 1234)
