"""Analysis of several ranks together."""

import pytest

from hpu_profiler.analysis.job import JobAnalysis, StageAnalysis, analyze_job
from hpu_profiler.analysis.operators import operator_shares
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


@pytest.fixture
def train(job: JobAnalysis) -> StageAnalysis:
    """Results for the only stage of both ranks."""
    (stage,) = job.stages
    return stage


def test_traces_are_ordered_by_rank(train: StageAnalysis) -> None:
    assert [each.name for each in train.traces] == ["rank 0", "rank 1"]


def test_straggler_has_the_longest_step_without_exposed_communication(train: StageAnalysis) -> None:
    """Steps of all ranks take the same time, because collectives synchronize them."""
    fast, slow = train.traces

    assert fast.step_time == slow.step_time
    assert (fast.step_time_excl_comm_wait, slow.step_time_excl_comm_wait) == (35, 90)
    assert train.straggler is slow


def test_equal_ranks_and_a_single_one_have_no_straggler(fast_rank: Trace, slow_rank: Trace) -> None:
    slow_rank.device_events = fast_rank.device_events

    assert analyze_job([fast_rank, slow_rank]).stages[0].straggler is None
    assert analyze_job([fast_rank]).stages[0].straggler is None


def test_traces_of_one_rank_and_stage_have_unique_names(fast_rank: Trace, builder: TraceBuilder) -> None:
    other = builder.trace(name="fit-0-training.2.pt.trace.json", hpu_profiler={"rank": 0, "stage": "training"})

    (stage,) = analyze_job([other, fast_rank]).stages
    assert [each.name for each in stage.traces] == ["rank 0, trace 1", "rank 0, trace 2"]


def test_traces_of_several_runs_are_noted(fast_rank: Trace, slow_rank: Trace, builder: TraceBuilder) -> None:
    """Each rank of a run has a profiler of its own."""
    fast_rank.run, slow_rank.run = "a", "b"
    other = builder.trace(hpu_profiler={"rank": 0, "stage": "training", "run": "c"})

    assert analyze_job([fast_rank, slow_rank]).notes == []
    assert "traces of 2 runs are taken as one" in analyze_job([fast_rank, slow_rank, other]).notes[-1]


def test_trace_without_a_rank_is_named_after_its_file(builder: TraceBuilder) -> None:
    trace = builder.trace(builder.operator("aten::mm", 0, 5), name="mine.1.pt.trace.json")

    assert [each.name for each in analyze_job([trace]).stages[0].traces] == ["mine"]


def test_stages_are_in_lightnings_order(builder: TraceBuilder) -> None:
    traces = [
        builder.trace(builder.step(0, 0, 10), name=f"{stage}.pt.trace.json", hpu_profiler={"rank": 0, "stage": stage})
        for stage in ("", "test", "validation", "training")
    ]

    assert [each.stage for each in analyze_job(traces).stages] == ["train", "validate", "test", ""]


def test_operator_shares_are_of_device_time(train: StageAnalysis) -> None:
    times = {"nic_toy_send": 170, "aten::mm": 80, "aten::item": 4}

    assert {row.name: share for row, share in operator_shares(train.operators)} == {
        name: pytest.approx(time / 254) for name, time in times.items()
    }
