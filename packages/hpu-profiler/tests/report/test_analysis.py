"""A trace becomes what a report says of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_profiler.report.analysis import analyse, report
from hpu_profiler.report.model import Collective, Compilations, Copies, Report
from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reading import read

from ..traces import Writer  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_ranks_come_in_order(made: Report) -> None:
    """Whatever the order of the files."""
    assert [analysis.name for analysis in made.analyses] == ["rank 0", "rank 1"]


def test_the_window_is_that_of_the_steps(quick: Trace) -> None:
    """From the first one's begin to the last one's end."""
    analysis = analyse(quick, "rank 0")

    assert (analysis.steps, analysis.window, analysis.step_time) == (2, 200, 100)


def test_the_card_is_busy_with_whatever_it_does(quick: Trace) -> None:
    """Work at the same time counts once: 20 us of a kernel, 65 more of a collective, a copy."""
    assert analyse(quick, "rank 0").busy == 2 * (20 + 65 + 1)


def test_idle_time_has_causes(slow: Trace) -> None:
    """Of two at a time the first counts: a compilation during the loading is a compilation."""
    analysis = analyse(slow, "rank 1")

    assert analysis.idle == {
        "compilation": 10,
        "data loading": 2 * 60 - 10,
        "host sync": 2 * 4,
        "other host work": 2 * 5,
    }
    assert analysis.busy + sum(analysis.idle.values()) == analysis.window


def test_collectives_overlap_with_kernels(quick: Trace) -> None:
    """Those are 5 us in each step."""
    analysis = analyse(quick, "rank 0")

    assert (analysis.collective, analysis.overlapped) == (140, 10)
    assert analysis.collectives == (Collective("hccl:allreduce", 2, 140, 128),)


def test_copies_have_a_direction(quick: Trace) -> None:
    """By what the trace calls them."""
    assert analyse(quick, "rank 0").copies == (Copies("to the host", 2, 2, 8),)


def test_the_bridges_count_of_graphs_is_taken(slow: Trace) -> None:
    """Where it counted more than the trace shows."""
    slow.counted = {"graph_compilation": {"TotalNumber": 3}}

    assert analyse(slow, "rank 1").compilations == Compilations(3, 1, 10)


def test_the_slowest_rank_is_the_one_that_waits_least(made: Report) -> None:
    """All take the same time for a step, since they meet in it."""
    quick, slow = made.analyses

    assert quick.step_time == slow.step_time
    assert (quick.own_time, slow.own_time) == (35, 90)
    assert made.slowest is slow


def test_ranks_that_are_alike_have_no_slowest(quick: Trace, slow: Trace) -> None:
    """And so has one alone."""
    slow.work, slow.spans, slow.compilations = quick.work, quick.spans, quick.compilations

    assert report([quick, slow]).slowest is None
    assert report([quick]).slowest is None


def test_several_traces_of_a_rank_are_told_apart(quick: Trace, make_trace: Callable[..., Path]) -> None:
    """By the kind of steps, and by number."""
    names = ["fit-0-training.2.pt.trace.json", "fit-0-validation.3.pt.trace.json"]
    others = [
        read(make_trace(name=name, hpu_profiler={"rank": 0, "stage": name.split("-")[2].split(".")[0]}))
        for name in names
    ]

    analyses = report([*others, quick]).analyses

    assert [each.name for each in analyses] == [
        "rank 0, training, trace 1",
        "rank 0, training, trace 2",
        "rank 0, validation",
    ]


def test_a_trace_of_the_host_alone_has_no_idle_card(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """There is nothing to say about a card, and no rank to name it by."""
    trace = read(make_trace(writer.operator("aten::mm", 0, 5), name="mine.1.pt.trace.json"))

    (analysis,) = report([trace]).analyses

    assert (analysis.name, analysis.has_card, analysis.idle, analysis.window) == ("mine", False, {}, 5)


def test_an_empty_trace_is_no_error(make_trace: Callable[..., Path]) -> None:
    """It says nothing."""
    (analysis,) = report([read(make_trace())]).analyses

    assert (analysis.window, analysis.step_time, analysis.idle_share) == (0, 0, 0)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "to the card"),
        ("h2d", "to the card"),
        ("host_to_device", "to the card"),
        ("Memcpy DtoD", "on the card"),
        ("memcpy", "unknown"),
    ],
)
def test_directions_are_written_in_many_ways(
    name: str, direction: str, writer: Writer, make_trace: Callable[..., Path]
) -> None:
    """One that is not known is not guessed."""
    (copies,) = analyse(read(make_trace(writer.work(name, 0, 1, "DMA", "Memcpy"))), "rank 0").copies

    assert copies.direction == direction
