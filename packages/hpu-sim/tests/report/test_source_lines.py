"""One line for all ranks, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hpu_sim.report.schema import Steps
from hpu_sim.report.source_lines import SourceLine, rank_labels, source_lines

from .factories import make_frame, make_record, make_report, make_site

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.report.schema import Site


@pytest.fixture
def line_of() -> Callable[[Site], SourceLine]:
    """Returns the line of a site in a run of ten steps."""

    def line(site: Site) -> SourceLine:
        (line,) = source_lines(make_report(make_record(sites=(site,))))
        return line

    return line


def test_ranks_share_a_line() -> None:
    """Their counts are summed, and the busiest one tells how often it happens."""
    records = [
        make_record(rank=0, sites=(make_site(count=3, bytes=10, steps=3, max_per_step=1),)),
        make_record(rank=2, sites=(make_site(count=10, bytes=10, steps=10, max_per_step=2),)),
    ]

    (line,) = source_lines(make_report(*records))

    assert (line.ranks, line.count, line.bytes) == ((0, 2), 13, 20)
    assert (line.count_per_rank, line.steps, line.max_per_step) == (10, 10, 2)


def test_ranks_are_named_by_number() -> None:
    """And by process where a program ran several jobs."""
    once = make_report(make_record(rank=0), make_record(rank=1))
    twice = make_report(make_record(rank=0, pid=7), make_record(rank=0, pid=8), make_record(rank=1))

    assert rank_labels(once) == ("0", "1")
    assert rank_labels(twice) == ("0 (process 7)", "0 (process 8)", "1")


@pytest.mark.parametrize(
    "changes",
    [{"kind": "d2h"}, {"op": "copy to host"}, {"variant": "pinned"}, {"backward": "Pow"}, {"frame_index": None}],
    ids=str,
)
def test_what_differs_is_another_line(
    changes: dict[str, object],
) -> None:
    """Though it may be of the same source line."""
    report = make_report(make_record(sites=(make_site(), make_site(**changes))))

    assert len(source_lines(report)) == 2


def test_other_source_lines_are_others() -> None:
    """The most frequent comes first."""
    rare = make_site(stack=(make_frame(line=1),), count=1)
    often = make_site(stack=(make_frame(line=2),), count=9)

    first, second = source_lines(make_report(make_record(sites=(rare, often))))

    assert first.frame is not None
    assert second.frame is not None
    assert (first.frame.line, second.frame.line) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "in every step"),
        ({"count": 19, "max_per_step": 2}, "2 in every step"),
        (
            {"count": 20, "max_per_step": 2, "in_first_step": 0, "steps": 9},
            "20 times, in 9 of 10 steps, at most 2 in one",
        ),
        ({"count": 3, "in_first_step": 3, "steps": 1, "last_step": 1}, "3 times, in step 1"),
        ({"count": 1, "in_first_step": 1, "steps": 1, "last_step": 1}, "once, in step 1"),
        ({"count": 1, "in_first_step": 0, "steps": 1}, "once, in 1 of 10 steps"),
        (
            {"count": 12, "in_first_step": 0, "steps": 3, "max_per_step": 5},
            "12 times, in 3 of 10 steps, at most 5 in one",
        ),
        (
            {"count": 12, "in_first_step": 0, "steps": 1, "last_step": 11, "max_per_step": 12},
            "12 times, in 1 of 11 steps, at most 12 in one",
        ),
    ],
)
def test_frequency_in_words(changes: dict[str, int], words: str, line_of: Callable[[Site], SourceLine]) -> None:
    """The first step, which holds the set-up, does not count as one of many."""
    assert line_of(make_site(**changes)).frequency == words


def test_frequency_without_a_training() -> None:
    """As in inference."""
    steps = Steps(0, (), 1, (), (), ())
    (line,) = source_lines(make_report(make_record(steps=steps, sites=(make_site(count=4, in_first_step=4, steps=1),))))

    assert line.frequency == "4 times, with no training step"
    assert not line.is_in_loop


@pytest.mark.parametrize(("steps", "is_in_loop"), [(10, True), (6, True), (5, False), (1, False)])
def test_a_line_is_in_the_loop_if_most_steps_pass_it(
    steps: int, is_in_loop: bool, line_of: Callable[[Site], SourceLine]
) -> None:
    """At least half of those after the first."""
    assert line_of(make_site(steps=steps)).is_in_loop is is_in_loop


def test_two_steps_make_no_loop() -> None:
    """Too few to tell."""
    steps = Steps(2, ((1, 1),), 1, (1, 1), (0, 0), (0, 0))
    (line,) = source_lines(make_report(make_record(steps=steps, sites=(make_site(steps=2),))))

    assert not line.is_in_loop


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "a value was read: .item(), float(), a branch on a tensor, printing"),
        ({"op": "copy to host"}, "a tensor was copied to the host: .cpu(), .numpy(), printing"),
        ({"op": "synchronize"}, "the program asked to wait"),
        ({"op": "aten::nonzero"}, "the shape depends on data: nonzero"),
        ({"kind": "compilation", "op": "aten::mul", "variant": "shapes"}, "mul"),
        ({"kind": "compilation", "op": "", "variant": "end"}, "the graph ended where earlier ones went on"),
        (
            {"kind": "dtype", "op": "aten::mul", "variant": "float64", "backward": "Pow"},
            "mul, float64 (backward of Pow)",
        ),
        ({"kind": "dtype", "op": "aten::mul", "variant": "float64", "backward": ""}, "mul, float64 (backward)"),
        ({"kind": "h2d", "op": "copy", "variant": "pinned"}, "to the card, pinned memory"),
        ({"kind": "d2h", "op": "copy", "variant": "pageable"}, "to the host, pageable memory"),
        ({"kind": "collective", "op": "allreduce", "variant": "int64"}, "allreduce, int64"),
        ({"kind": "refused", "op": "aten::fft"}, "fft"),
    ],
)
def test_meaning_in_words(changes: dict[str, object], words: str, line_of: Callable[[Site], SourceLine]) -> None:
    """What the program did, rather than what the device calls it."""
    assert line_of(make_site(**changes)).description == words
