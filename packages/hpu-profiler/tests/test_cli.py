"""The command."""

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from packaging.version import Version

from hpu_profiler.cli import main

from .traces import Writer

# Before 8.2, click's runner gives both streams as one unless it is told otherwise.
_SEPARATE: dict[str, Any] = {"mix_stderr": False} if Version(metadata.version("click")) < Version("8.2") else {}
_RUNNER = CliRunner(**_SEPARATE)


@pytest.fixture
def folder(writer: Writer, make_trace: Callable[..., Path]) -> Path:
    """A folder with a trace of two steps."""
    steps = [writer.step(0, 0, 10), writer.step(1, 10, 10)]
    work = [writer.operator("aten::mm", 1, 3, 1), writer.work("aten::mm", 2, 4, "MME", number=1)]
    return make_trace(*steps, *work, hpu_profiler={"rank": 0}).parent


def _run(*arguments: object) -> Result:
    return _RUNNER.invoke(main, ["report", *map(str, arguments)])


def test_a_folder_becomes_tables(folder: Path) -> None:
    """In the terminal."""
    result = _run(folder)

    assert result.exit_code == 0, result.output
    assert "Operators by time on the card" in result.stdout


def test_json_has_stable_keys(folder: Path) -> None:
    """For programs; times are microseconds."""
    answer = json.loads(_run(folder, "--json").stdout)

    assert list(answer) == ["simulated", "slowest", "findings", "traces", "operators"]
    assert answer["traces"][0]["step_time"] == 10
    assert answer["traces"][0]["idle_share"] == 0.8
    assert answer["operators"][0]["hpu"] == 4


def test_a_page_is_written_beside(folder: Path, tmp_path: Path) -> None:
    """And its place is told."""
    page = tmp_path / "report.html"

    result = _run(folder, "--html", page)

    assert page.read_text().startswith("<!DOCTYPE html>")
    assert str(page) in result.stdout


def test_a_page_leaves_json_alone(folder: Path, tmp_path: Path) -> None:
    """Both can be had at once."""
    assert json.loads(_run(folder, "--json", "--html", tmp_path / "report.html").stdout)


@pytest.mark.parametrize("content", [None, "{"], ids=["absent", "broken"])
def test_what_cannot_be_read_is_one_line(content: str | None, tmp_path: Path) -> None:
    """Not a traceback."""
    path = tmp_path / "a.pt.trace.json"
    if content is not None:
        path.write_text(content)

    result = _run(path)

    assert result.exit_code == 1
    assert result.stderr.startswith("hpu-profiler: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_page_that_cannot_be_written_is_one_line(folder: Path, tmp_path: Path) -> None:
    """It names the file."""
    result = _run(folder, "--html", tmp_path / "absent" / "report.html")

    assert result.exit_code == 1
    assert "absent" in result.stderr
