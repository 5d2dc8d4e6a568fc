"""Difference between two jobs."""

from collections.abc import Callable
from typing import Any

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


def _graphs(builder: TraceBuilder, make_trace: Callable[..., Trace], steps: int, *names: str, **options: Any) -> Trace:
    """Return a trace of steps of 100 us, each with a product of 40 us and a kernel of 20 us, in graphs of their own."""
    events = []
    for index in range(steps):
        start = 100.0 * index
        events.append(builder.step(index, start, 100))
        for number, (name, track) in enumerate(zip(names, ("MME", "TPC"), strict=True)):
            event = builder.device_event(name, start + 50 * number, 40 / (number + 1), track)
            events.append({**event, "args": {"recipeId": 8 - number}})
    return make_trace(*events, **options)


def test_engines_and_graphs_are_compared_per_step(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    """Graphs have numbers in the order in which they first run, whatever the bridge's numbers are."""
    one, other = (analyze_job([_graphs(builder, make_trace, steps, "mm", "add")]) for steps in (3, 2))
    nothing = analyze_job([make_trace(builder.step(0, 0, 100), builder.device_event("mm", 0, 30, "MME"))])

    ((equal,), (stage,)) = (diff_jobs(one, each) for each in (other, nothing))

    assert (equal.engines, equal.graphs, equal.operators) == ((), (), ())
    assert [(each.name, each.before, each.after) for each in stage.engines] == [("TPC", 20, 0), ("MME", 40, 30)]
    assert [(each.name, each.before, each.after) for each in stage.graphs] == [("graph 1", 40, 0), ("graph 2", 20, 0)]


def test_a_prediction_names_operators_as_the_kernels_of_a_card(
    builder: TraceBuilder, make_trace: Callable[..., Trace]
) -> None:
    """A trace of torch's profiler shows no stage, and that of a plan does."""
    device = {"id": 0, "name": "GAUDI2", "predicted": True}
    plan = _graphs(
        builder,
        make_trace,
        1,
        "aten::mm",
        "aten::_softmax and 2 more",
        deviceProperties=[device],
        hpu_profiler={"stage": "training"},
    )
    card = _graphs(builder, make_trace, 2, "gemm", "softmax_fwd_bf16_12")

    (stage,) = diff_jobs(analyze_job([card]), analyze_job([plan]))

    assert (stage.stage, stage.operators) == ("train", ())
