"""From records to a report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from hpu_sim.report.merge import check_report_path, merge_records, read_records, wait_for_processes, write
from hpu_sim.report.schema import Report, from_dict, to_dict

from .factories import make_record, make_report

if TYPE_CHECKING:
    from pathlib import Path

    from hpu_sim.report.schema import RankRecord


def _leave(folder: Path, *records: RankRecord) -> None:
    for index, record in enumerate(records):
        (folder / f"process-{index}.json").write_text(json.dumps(to_dict(record)), encoding="utf-8")


def test_records_are_put_in_order(tmp_path: Path) -> None:
    """By rank, and ranks that ran twice by process."""
    _leave(tmp_path, make_record(rank=1, pid=7), make_record(rank=0, pid=9), make_record(rank=0, pid=8))

    report = merge_records(tmp_path, ["train.py"], 0)

    assert [(record.rank, record.pid) for record in report.ranks] == [(0, 8), (0, 9), (1, 7)]
    assert (report.simulated, report.command, report.exit_code) == (True, ("train.py",), 0)


def test_ranks_that_left_nothing_are_missing(tmp_path: Path) -> None:
    """The others know how many there should be."""
    _leave(tmp_path, make_record(rank=2, world_size=4))

    assert merge_records(tmp_path, [], None).missing_ranks == (0, 1, 3)


def test_no_record_makes_an_empty_report(tmp_path: Path) -> None:
    """No process took a card."""
    report = merge_records(tmp_path, [], 0)

    assert (report.ranks, report.missing_ranks) == ((), ())


def test_a_draft_is_no_record(tmp_path: Path) -> None:
    """A process that is killed while it writes leaves one."""
    (tmp_path / "process-1.part").write_text("{", encoding="utf-8")

    assert read_records(tmp_path) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"rank": 0}'])
def test_a_record_of_something_else_is_named(text: str, tmp_path: Path) -> None:
    """So that it can be found."""
    (tmp_path / "process-1.json").write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=re.escape(f"the record {tmp_path / 'process-1.json'} cannot be read: ")):
        read_records(tmp_path)


def test_processes_are_awaited(tmp_path: Path) -> None:
    """Until they are gone, though they are nobody's children any more."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        _leave(tmp_path, make_record(pid=process.pid, state="running"))
        assert process.stdin is not None
        process.stdin.close()

        wait_for_processes(tmp_path, timeout=60)

        assert process.poll() == 0


def test_processes_that_stay_are_not_awaited_for_ever(tmp_path: Path) -> None:
    """A rank may hang."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        _leave(tmp_path, make_record(pid=process.pid, state="running"))

        wait_for_processes(tmp_path, timeout=0)

        assert process.poll() is None


def test_processes_that_ended_are_not_awaited(tmp_path: Path) -> None:
    """Nor those that are gone; their numbers may be others' by now."""
    _leave(tmp_path, make_record(pid=1, state="exited"), make_record(pid=2**22 + 1, state="running"))
    begin = time.monotonic()

    wait_for_processes(tmp_path, timeout=3600)

    assert time.monotonic() - begin < 3600


def test_a_report_is_written_in_the_format_of_its_suffix(
    tmp_path: Path,
) -> None:
    """Both at once, if both are asked for."""
    report = make_report(make_record())

    write(report, [tmp_path / "a.html", tmp_path / "b.json"])

    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert from_dict(Report, json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))) == report


def test_a_path_that_can_be_written_is_left_alone(tmp_path: Path) -> None:
    """A check makes no file and spoils none."""
    (tmp_path / "old.html").write_text("kept", encoding="utf-8")

    check_report_path(tmp_path / "new.html")
    check_report_path(tmp_path / "old.html")

    assert [path.name for path in tmp_path.iterdir()] == ["old.html"]
    assert (tmp_path / "old.html").read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("report.pdf", "`report` must be a path that ends in .html or .json, got "),
        ("report", "`report` must be a path that ends in .html or .json, got "),
        ("absent/report.html", "`report` must be a path in a folder that exists, there is none at "),
        ("folder.html", "`report` must be a path that can be written, got "),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(name: str, words: str, tmp_path: Path) -> None:
    """With the reason."""
    (tmp_path / "folder.html").mkdir()

    with pytest.raises(ValueError, match=re.escape(words)):
        check_report_path(tmp_path / name)
