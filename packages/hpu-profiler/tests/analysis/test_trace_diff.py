"""Difference between two jobs."""

from collections.abc import Callable

from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.analysis.trace_diff import diff_jobs
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def _job(builder: TraceBuilder, make_trace: Callable[..., Trace], steps: int, kernels: dict[str, float]) -> JobAnalysis:
    """Return a job with steps of 100 us, each with the kernels."""
    events = []
    for index in range(steps):
        start = 100.0 * index
        events.append(builder.step(index, start, 100))
        for name, duration in kernels.items():
            events.append(builder.device_event(name, start, duration))
            start += duration
    return analyze_job([make_trace(*events, hpu_profiler={"stage": "training"})])


def test_times_are_per_step(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    """The jobs have different numbers of steps."""
    before = _job(builder, make_trace, 2, {"mm": 40})
    after = _job(builder, make_trace, 3, {"mm": 30})

    (stage,) = diff_jobs(before, after)

    assert {each.name: (each.before, each.after) for each in stage.times} == {
        "step": (100, 100),
        "compute": (40, 30),
        "idle: unrecorded": (60, 70),
    }


def test_operators_are_sorted_by_difference(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    """An operator may be new or gone; an equal one is left out."""
    before = _job(builder, make_trace, 2, {"mm": 40, "gone": 5, "equal": 3})
    after = _job(builder, make_trace, 2, {"mm": 30, "new": 20, "equal": 3})

    (stage,) = diff_jobs(before, after)

    assert [(each.name, each.difference, each.calls_before, each.calls_after) for each in stage.operators] == [
        ("new", 20, 0, 1),
        ("mm", -10, 1, 1),
        ("gone", -5, 1, 0),
    ]


def test_stage_of_one_job_is_left_out(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    validation = analyze_job([make_trace(builder.step(0, 0, 1), hpu_profiler={"stage": "validation"})])

    assert diff_jobs(_job(builder, make_trace, 2, {"mm": 40}), validation) == ()
