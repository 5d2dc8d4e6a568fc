"""Counting by line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hpu_sim.report import site_counter as module
from hpu_sim.report.frames import FrameClassifier
from hpu_sim.report.site_counter import MAX_EXAMPLES, CollectiveCounter, SiteCounter, SiteTable

if TYPE_CHECKING:
    import pytest


def _add(sites: SiteTable, *, step: int = 1, op: str = "aten::item") -> None:
    """Count an event at the line that calls this."""
    sites.get("host_sync", op, "", sys._getframe(1), None).add(step, 4, "")


def test_events_of_a_line_are_counted_together() -> None:
    """However often it is passed."""
    sites = SiteTable(FrameClassifier())
    for _ in range(3):
        _add(sites)

    (site,) = sites.sites()
    assert (site.count, site.bytes) == (3, 12)
    assert site.frame is not None
    assert site.frame.source == "_add(sites)"


def test_two_calls_on_a_line_are_one_site() -> None:
    """A line is what a reader can find."""
    sites = SiteTable(FrameClassifier())
    _add(sites), _add(sites)  # type: ignore[func-returns-value] # both on one line

    assert [site.count for site in sites.sites()] == [2]


def test_operators_of_a_line_are_told_apart() -> None:
    """The most frequent comes first."""
    sites = SiteTable(FrameClassifier())
    for op in ("rare", "often", "often"):
        _add(sites, op=op)

    assert [(site.op, site.count) for site in sites.sites()] == [("often", 2), ("rare", 1)]


def test_an_event_without_python_has_no_line() -> None:
    """It is counted all the same."""
    sites = SiteTable(FrameClassifier())
    sites.get("dtype", "mul", "float64", None, "Pow").add(1, 0, "")

    (site,) = sites.sites()
    assert (site.frame, site.stack, site.backward) == (None, (), "Pow")


def test_a_site_that_was_only_looked_up_is_none() -> None:
    """As that of a difference whose graph never closed."""
    sites = SiteTable(FrameClassifier())
    sites.get("compilation", "mul", "shapes", sys._getframe(), None)

    assert sites.sites() == ()


def test_sites_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further events are counted as a whole."""
    monkeypatch.setattr(module, "MAX_SITES", 3)
    sites = SiteTable(FrameClassifier())
    for index in range(5):
        for _ in range(2):
            _add(sites, op=str(index))

    assert [site.count for site in sites.sites()] == [2, 2, 2]
    assert sites.dropped_events == 4


def test_steps_are_counted_once_each() -> None:
    """And the step that has most events is kept, the first one left out, for it has the set-up, too."""
    counter = SiteCounter("host_sync", "item", "", None)
    for step in (1, 1, 1, 1, 3, 5, 5):
        counter.add(step, 0, "")

    site = counter.site()
    assert (site.count, site.steps, site.first_step, site.last_step) == (7, 3, 1, 5)
    assert (site.in_first_step, site.max_per_step) == (4, 2)


def test_the_first_step_has_most_where_there_is_no_other() -> None:
    """Then it is what there is."""
    counter = SiteCounter("host_sync", "item", "", None)
    for _ in range(4):
        counter.add(1, 0, "")

    assert counter.site().max_per_step == 4


def test_examples_are_different_and_few() -> None:
    """In the spelling of a program."""
    counter = SiteCounter("h2d", "copy", "pinned", None)
    for size in (1, 1, 2, 3, 4, 5, 6):
        counter.add(1, 0, f"Float[{size}]")

    assert counter.site().examples == tuple(f"float32[{size}]" for size in range(1, MAX_EXAMPLES + 1))


def test_collectives_are_counted_by_size() -> None:
    """In powers of two, each size in the smallest that holds it."""
    collectives = CollectiveCounter()
    for size in (0, 1, 2, 3, 4, 5, 1024, 1025):
        collectives.add("allreduce", size)
    collectives.add("allgather", 8)

    gathered, reduced = collectives.stats()
    assert (gathered.name, gathered.count, gathered.sizes) == ("allgather", 1, ((8, 1),))
    assert (reduced.count, reduced.bytes) == (8, 2064)
    assert reduced.sizes == ((0, 1), (1, 1), (2, 1), (4, 2), (8, 1), (1024, 1), (2048, 1))
