"""Text report."""

import io

import pytest
from rich.console import Console

from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.report.text import print_report
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def _print(job: JobAnalysis) -> str:
    file = io.StringIO()
    print_report(Console(file=file, width=160), job, row_limit=1)
    return file.getvalue()


def test_report_on_two_ranks(job: JobAnalysis) -> None:
    """The straggler is named, and the row limit keeps the operators with most time on the card."""
    output = _print(job)
    (row,) = (line for line in output.splitlines() if line.startswith("rank 1, straggler"))
    operators = output.partition("Operators by time on the card")[2].splitlines()[2:]
    host_work = output.partition("Host work")[2].partition("Time by engine")[0].splitlines()
    (loading,) = (line for line in host_work if line.startswith("rank 1") and "data loading" in line)

    assert output.startswith("hpu-profiler: 2 traces, GAUDI2\n\nStage train: 100 us per step\n")
    assert row.split()[3:] == ["2", "100", "us", "90", "us", "69", "%", "30", "us", "20", "us", "1"]
    assert [line.split()[0] for line in operators if line.strip()] == ["nic_toy_send"]
    assert loading.split()[-4:] == ["60", "us", "55", "us"]


@pytest.mark.parametrize(
    ("origin", "title", "time"),
    [("simulated", "simulated", "simulated"), ("predicted", "predicted, not measured", "predicted")],
)
def test_origin_of_times_is_marked(origin: str, title: str, time: str, fast_rank: Trace) -> None:
    setattr(fast_rank, origin, True)

    output = _print(analyze_job([fast_rank]))

    assert output.startswith(f"hpu-profiler: 1 trace, GAUDI2 ({title})\n")
    assert f"per step of {time} time." in output


@pytest.fixture
def large_job(builder: TraceBuilder) -> JobAnalysis:
    """64 ranks on 8 machines, of which rank 40 takes longest and rank 7 shortest."""
    times = {rank: 50 + rank % 8 for rank in range(64)} | {40: 90, 7: 20}
    return analyze_job(
        builder.trace(
            builder.step(0, 0, 100),
            builder.device_event("toy_gemm", 0, time),
            builder.device_event("nic_toy_send", time, 100 - time, "NIC"),
            name=f"{rank}.pt.trace.json",
            hpu_profiler={"rank": rank, "host": f"node-{rank // 8}"},
        )
        for rank, time in times.items()
    )


def test_report_on_64_ranks_shows_the_slowest_the_median_and_the_fastest(large_job: JobAnalysis) -> None:
    table = _print(large_job).partition("Ranks: the 6 slowest of 64, the median and the fastest")[2]

    rows = table.strip().splitlines()[1:9]
    assert rows[0].startswith("rank 40 on node-5, straggler ")
    assert [row.split()[1] for row in rows[-2:]] == ["3", "7"]


def test_details_of_64_ranks_are_those_of_three(large_job: JobAnalysis) -> None:
    output = _print(large_job)

    assert output.count("\n") < 80
    engines = output.partition("Time by engine")[2].partition("Operators")[0]
    assert {line.split()[1] for line in engines.splitlines() if line.startswith("rank ")} == {"40", "3", "7"}


def test_equal_notes_are_printed_once(builder: TraceBuilder) -> None:
    traces = [
        builder.trace(builder.step(0, 0, 9), name=f"{rank}.json", hpu_profiler={"rank": rank}) for rank in range(3)
    ]
    for trace in traces:
        trace.notes = ("the file is cut",)

    assert "Note: 0.json and 2 more: the file is cut\n" in _print(analyze_job(traces))
