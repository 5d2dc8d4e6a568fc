"""What a reader should look at first."""

from hpu_profiler.report.analysis import report
from hpu_profiler.report.model import Report
from hpu_profiler.trace.model import Trace


def test_the_gravest_comes_first(made: Report) -> None:
    """By the share of time that it concerns, each kind once and for the rank in which it weighs most."""
    assert [finding.title for finding in made.findings] == [
        "Collectives take 65 % of the time with nothing computed meanwhile (rank 0)",
        "The card is idle for 55 % of the time because of data loading (rank 1)",
        "Rank 1 is the slowest, by 55 us a step",
        "The card is idle for 5 % of the time because of compilation (rank 1)",
        "The card is idle for 5 % of the time because of other host work (rank 0)",
        "1 graph was compiled again for new shapes (rank 1)",
    ]


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
