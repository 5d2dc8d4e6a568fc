"""Analysis of several ranks together."""

from collections.abc import Callable

import pytest

from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_traces_are_ordered_by_rank(job: JobAnalysis) -> None:
    assert [each.name for each in job.traces] == ["rank 0", "rank 1"]


def test_straggler_has_the_longest_step_without_exposed_communication(job: JobAnalysis) -> None:
    """Steps of all ranks take the same time, because collectives synchronize them."""
    fast, slow = job.traces

    assert fast.step_time == slow.step_time
    assert (fast.step_time_excl_comm_wait, slow.step_time_excl_comm_wait) == (35, 90)
    assert job.straggler is slow


def test_equal_ranks_have_no_straggler(fast_rank: Trace, slow_rank: Trace) -> None:
    slow_rank.device_events = fast_rank.device_events

    assert analyze_job([fast_rank, slow_rank]).straggler is None


def test_single_rank_has_no_straggler(fast_rank: Trace) -> None:
    assert analyze_job([fast_rank]).straggler is None


def test_traces_of_one_rank_have_unique_names(fast_rank: Trace, make_trace: Callable[..., Trace]) -> None:
    others = [
        make_trace(name=f"fit-0-{stage}.{number}.pt.trace.json", hpu_profiler={"rank": 0, "stage": stage})
        for number, stage in ((2, "training"), (3, "validation"))
    ]

    assert [each.name for each in analyze_job([*others, fast_rank]).traces] == [
        "rank 0, training, trace 1",
        "rank 0, training, trace 2",
        "rank 0, validation",
    ]


def test_trace_without_a_rank_is_named_after_its_file(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(builder.operator("aten::mm", 0, 5), name="mine.1.pt.trace.json")

    assert [each.name for each in analyze_job([trace]).traces] == ["mine"]


def test_operator_shares_are_of_device_time(job: JobAnalysis) -> None:
    times = {"hccl:allreduce": 170, "aten::mm": 80, "aten::item": 4}

    assert {row.name: share for row, share in job.operator_shares} == {
        name: pytest.approx(time / 254) for name, time in times.items()
    }


def test_operator_shares_without_a_device_are_of_self_cpu_time(
    builder: TraceBuilder, make_trace: Callable[..., Trace]
) -> None:
    trace = make_trace(builder.operator("aten::linear", 0, 8), builder.operator("aten::addmm", 1, 6))

    assert [(row.name, share) for row, share in analyze_job([trace]).operator_shares] == [
        ("aten::addmm", 0.75),
        ("aten::linear", 0.25),
    ]
