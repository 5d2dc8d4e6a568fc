"""Recommendations."""

from collections.abc import Callable

from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_recommendations_are_sorted_by_affected_time(job: JobAnalysis) -> None:
    """Each kind appears once, for the rank with the largest fraction."""
    assert [each.title for each in job.recommendations] == [
        "The card is idle 55 % of the time: data loading (rank 1)",
        "Rank 1 is the straggler: its step takes 55 us longer",
        "Exposed communication takes 10 % of the time (rank 1)",
        "The card is idle 5 % of the time: compilation (rank 1)",
        "The card is idle 5 % of the time: other host work (rank 0)",
        "1 graph was recompiled for new shapes (rank 1)",
    ]


def test_straggler_is_compared_with_the_fastest_rank(job: JobAnalysis) -> None:
    (straggler,) = (each for each in job.recommendations if "straggler" in each.title)

    assert "The largest difference from rank 0 is data loading: 50 us more per step." in straggler.details


def test_straggler_is_not_compared_with_other_stages(
    fast_rank: Trace, slow_rank: Trace, builder: TraceBuilder, make_trace: Callable[..., Trace]
) -> None:
    """A validation step is shorter than a training step on every rank."""
    validation = make_trace(builder.step(0, 0, 1), hpu_profiler={"rank": 0, "stage": "validation"})

    job = analyze_job([fast_rank, slow_rank, validation])

    (straggler,) = (each for each in job.recommendations if "straggler" in each.title)
    assert "from rank 0, training is data loading" in straggler.details


def test_exposed_communication_is_reported_without_a_straggler(fast_rank: Trace) -> None:
    titles = [each.title for each in analyze_job([fast_rank]).recommendations]

    assert titles[0] == "Exposed communication takes 65 % of the time (rank 0)"


def test_action_with_most_idle_time_is_named(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(
        builder.step(0, 0, 100),
        builder.annotation("[pl][profile]run_training_batch", 0, 100),
        builder.annotation("[pl][profile]augment", 5, 80),
        builder.device_event("k", 90, 10),
    )

    (recommendation,) = analyze_job([trace]).recommendations

    assert recommendation.details.startswith("Most of it is in `augment`,")


def test_details_are_sentences(job: JobAnalysis) -> None:
    assert all(each.details.endswith(".") for each in job.recommendations)


def test_small_fractions_are_left_out(fast_rank: Trace) -> None:
    for event in fast_rank.device_events:
        event.kind = "kernel"
        event.start, event.end = fast_rank.window

    assert analyze_job([fast_rank]).recommendations == ()
