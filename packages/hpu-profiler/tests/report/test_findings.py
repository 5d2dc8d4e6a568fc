"""What a reader should look at first."""

from collections.abc import Callable
from pathlib import Path

from hpu_profiler.report.analysis import report
from hpu_profiler.report.model import Report
from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reading import read

from ..traces import Writer  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_the_gravest_comes_first(made: Report) -> None:
    """By the share of time that it concerns, each kind once and for the rank in which it weighs most."""
    assert [finding.title for finding in made.findings] == [
        "The card is idle for 55 % of the time because of data loading (rank 1)",
        "Rank 1 is the slowest, by 55 us a step",
        "Collectives take 10 % of the time with nothing computed meanwhile (rank 1)",
        "The card is idle for 5 % of the time because of compilation (rank 1)",
        "The card is idle for 5 % of the time because of other host work (rank 0)",
        "1 graph was compiled again for new shapes (rank 1)",
    ]


def test_the_slowest_rank_is_told_what_it_has_more_of(made: Report) -> None:
    """Than the quickest."""
    (finding,) = (finding for finding in made.findings if "slowest" in finding.title)

    assert "What it has more of than rank 0 is data loading, 50 us a step." in finding.advice


def test_collectives_are_told_where_no_rank_is_slow(quick: Trace) -> None:
    """Otherwise it is the wait for that one."""
    titles = [finding.title for finding in report([quick]).findings]

    assert titles[0] == "Collectives take 65 % of the time with nothing computed meanwhile (rank 0)"


def test_a_place_that_takes_most_of_the_time_is_named(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """By the innermost mark of the program's or Lightning's."""
    marks = [writer.span("[pl][profile]run_training_batch", 0, 100), writer.span("[pl][profile]augment", 5, 80)]
    trace = read(make_trace(writer.step(0, 0, 100), *marks, writer.work("k", 90, 10)))

    (finding,) = report([trace]).findings

    assert finding.advice.startswith("Most of that is in `augment`,")


def test_every_finding_says_what_to_do(made: Report) -> None:
    """A fault without a remedy helps nobody."""
    assert all(finding.advice.endswith(".") for finding in made.findings)


def test_little_is_not_worth_a_word(quick: Trace) -> None:
    """A card that is busy nearly all the time is told nothing about idleness."""
    quick.spans.clear()
    for work in quick.work:
        work.kind = "kernel"
        work.begin, work.end = quick.window

    assert report([quick]).findings == ()
