"""Text report."""

import io

import pytest
from rich.console import Console

from hpu_profiler.analysis.job import JobAnalysis
from hpu_profiler.report.text import print_report


@pytest.fixture
def output(job: JobAnalysis) -> str:
    """Report on two ranks with one operator."""
    console = Console(file=io.StringIO(), width=160)
    print_report(console, job, row_limit=1)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_first_line_says_that_the_card_is_simulated(output: str) -> None:
    assert output.startswith("hpu-profiler: 2 traces, GAUDI2 (simulated)\n")


def test_straggler_is_named_in_the_table_of_traces(output: str) -> None:
    (row,) = (line for line in output.splitlines() if line.startswith("rank 1, straggler"))

    assert row.split()[3:] == ["2", "100", "us", "90", "us", "69", "%", "30", "us", "33.3", "%", "1"]


def test_row_limit_keeps_the_operators_with_most_device_time(output: str) -> None:
    table = output.partition("Operators by time on the card")[2]

    assert [line.split()[0] for line in table.splitlines()[2:] if line.strip()] == ["hccl:allreduce"]
