"""The report in a terminal."""

import io

import pytest
from rich.console import Console

from hpu_profiler.report.model import Report
from hpu_profiler.report.text import show


@pytest.fixture
def shown(made: Report) -> str:
    """What is printed."""
    console = Console(file=io.StringIO(), width=160)
    show(console, made, limit=1)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_it_says_that_the_card_is_simulated(shown: str) -> None:
    """In the first line."""
    assert shown.startswith("hpu-profiler: 2 trace(s), GAUDI2 (simulated)\n")


def test_the_slowest_rank_is_named(shown: str) -> None:
    """In the table of traces."""
    (row,) = (line for line in shown.splitlines() if line.startswith("rank 1, the slowest"))

    assert row.split()[4:] == ["2", "100", "us", "90", "us", "69", "%", "30", "us", "33.3", "%", "1"]


def test_as_many_operators_are_shown_as_asked_for(shown: str) -> None:
    """The one with most time on the card."""
    table = shown.partition("Operators by time on the card")[2]

    assert [line.split()[0] for line in table.splitlines()[2:] if line.strip()] == ["hccl:allreduce"]
