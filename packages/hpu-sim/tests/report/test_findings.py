"""What is to be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.report.findings import findings, limitations
from hpu_sim.report.schema import Machine, UncaughtError

from .factories import make_frame, make_record, make_report, make_site

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.report.schema import Site

    Found = Callable[[Site], list[str]]

_REFUSED = "The card refused this"
_COMPLEX = "A card has no complex numbers"
_WAITS = "The host waits for the card in every step"
_SHAPES = "New shapes keep compiling graphs"
_OPERATORS = "New sequences of operators keep compiling graphs"
_REDUCTIONS = "Reductions of a dtype that HCCL has to convert"
_DOUBLE = "float64 is computed as float32"


@pytest.fixture
def found() -> Found:
    """Returns the titles of the findings that a site leads to."""
    return lambda site: [finding.title for finding in findings(make_report(make_record(sites=(site,))))]


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, _WAITS),
        ({"op": "aten::nonzero"}, _WAITS),
        ({"kind": "compilation", "op": "aten::mul", "variant": "shapes"}, _SHAPES),
        ({"kind": "compilation", "op": "aten::mul", "variant": "operators"}, _OPERATORS),
        ({"kind": "compilation", "op": "", "variant": "end"}, _OPERATORS),
        ({"kind": "dtype", "op": "aten::mul", "variant": "float64"}, _DOUBLE),
        ({"kind": "dtype", "op": "aten::mul", "variant": "complex"}, _COMPLEX),
        ({"kind": "refused", "op": "allreduce"}, _REFUSED),
        ({"kind": "collective", "op": "allreduce", "variant": "int64"}, _REDUCTIONS),
        ({"kind": "collective", "op": "allreduce", "variant": "float16"}, _REDUCTIONS),
        ({"kind": "collective", "op": "reduce_scatter_base", "variant": "float64"}, _REDUCTIONS),
    ],
)
def test_what_hurts_is_found(changes: dict[str, Any], title: str, found: Found) -> None:
    """By what happened and how often."""
    assert found(make_site(**changes)) == [title]


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 2, "count": 40, "max_per_step": 20},
        {"kind": "compilation", "op": "aten::mul", "variant": "shapes", "last_step": 3},
        {"kind": "compilation", "op": "aten::mul", "variant": "shapes", "count": 2},
        {"kind": "dtype", "op": "copy to the card", "variant": "int64"},
        {"kind": "collective", "op": "allreduce", "variant": "bfloat16"},
        {"kind": "collective", "op": "broadcast", "variant": "int64"},
        {"kind": "collective", "op": "reduce_scatter_base", "variant": "int64"},
        {"kind": "h2d", "op": "copy", "variant": "pageable"},
    ],
    ids=str,
)
def test_what_does_not_hurt_is_not(changes: dict[str, Any], found: Found) -> None:
    """An evaluation now and then, the first steps' graphs, what a card does itself."""
    assert found(make_site(**changes)) == []


def test_the_worst_comes_first() -> None:
    """What a card refuses before what holds it up before what it computes otherwise."""
    sites = (make_site(kind="dtype", variant="float64"), make_site(), make_site(kind="refused"))

    assert [each.category for each in findings(make_report(make_record(sites=sites)))] == ["fails", "slow", "differs"]


def test_an_error_that_ended_a_rank_is_one() -> None:
    """With its text and its line."""
    uncaught_error = UncaughtError("RuntimeError", "Complex datatype is not supported on HPU device.", make_frame())
    (finding,) = findings(make_report(make_record(rank=3, uncaught_error=uncaught_error)))

    assert finding.title == "Rank 3 ended with RuntimeError"
    assert finding.recommendation == "Complex datatype is not supported on HPU device. at /home/me/train.py:42"


def test_an_error_without_a_line_of_the_program_has_none() -> None:
    """As one in a launcher."""
    (finding,) = findings(make_report(make_record(uncaught_error=UncaughtError("OSError", "no", None))))

    assert finding.recommendation == "no"


def test_an_interruption_is_none() -> None:
    """Somebody wanted it."""
    assert findings(make_report(make_record(uncaught_error=UncaughtError("KeyboardInterrupt", "", None)))) == ()


def test_memory_close_to_its_end_is_one() -> None:
    """Of the ranks where it is."""
    full = make_record(rank=1, totals={"peak_bytes": 90 << 30})
    (finding,) = findings(make_report(make_record(), full))

    assert finding.title == "More than 90% of a card's memory was in use"
    assert finding.recommendation.startswith("On ranks 1.")


def test_nothing_is_missing_as_a_rule() -> None:
    """In lazy mode, every rank having ended."""
    assert limitations(make_report(make_record())) == ()


def test_ranks_without_a_record_are_named() -> None:
    """They were killed, or are elsewhere."""
    (limitation,) = limitations(make_report(make_record(world_size=4), missing_ranks=(1, 2, 3)))

    assert limitation.startswith("Ranks 1, 2, 3 left no record: killed")


def test_killed_ranks_are_one() -> None:
    """What they left is not the whole."""
    killed = [make_record(rank=rank, state="running") for rank in (5, 6)]
    (finding,) = findings(make_report(make_record(), *killed))

    assert (finding.category, finding.title) == ("fails", "Ranks 5, 6 did not end, but were killed")


def test_eager_mode_says_what_it_does_not_show() -> None:
    """And how to see it."""
    machine = Machine(1, "GAUDI2", "1.24.1", lazy=False, memory_bytes=96 << 30, torch="2.13.0")
    (limitation,) = limitations(make_report(make_record(machine=machine)))

    assert "PT_HPU_LAZY_MODE=1" in limitation


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recording_error": "KeyError: 3"}, "Rank 0 stopped recording: KeyError: 3."),
        ({"dropped_events": 7}, "Rank 0 had 7 events at more lines than are told apart."),
    ],
)
def test_what_recording_did_not_do_is_said(
    changes: dict[str, Any],
    words: str,
) -> None:
    """A report never looks more complete than it is."""
    assert limitations(make_report(make_record(**changes))) == (words,)


def test_int64_in_lazy_mode_is_mentioned() -> None:
    """It seldom matters, so it is no finding."""
    (limitation,) = limitations(make_report(make_record(sites=(make_site(kind="dtype", variant="int64"),))))

    assert "int32" in limitation
