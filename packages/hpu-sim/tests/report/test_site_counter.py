"""Tests of the counters per source line and cause."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hpu_sim.report import site_counter as module
from hpu_sim.report.schema import MAX_EXAMPLES, Site
from hpu_sim.report.site_counter import Origin, SiteTable

if TYPE_CHECKING:
    import pytest


def _add(sites: SiteTable, *, step: int = 1, op: str = "aten::item") -> None:
    """Count an event at the caller's line."""
    sites.get("host_sync", op, "", Origin.of(sys._getframe(1))).add(step, 4, "")


def test_events_of_a_line_share_a_site() -> None:
    sites = SiteTable()
    for _ in range(3):
        _add(sites)

    (site,) = sites.sites()
    assert (site.count, site.bytes) == (3, 12)
    assert site.frame is not None
    assert site.frame.source == "_add(sites)"


def test_two_calls_in_one_line_share_a_site() -> None:
    sites = SiteTable()
    _add(sites), _add(sites)  # type: ignore[func-returns-value] # both on one line

    assert [site.count for site in sites.sites()] == [2]


def test_stacks_below_a_line_have_separate_sites() -> None:
    """Two functions of a framework read a value below one line of the program."""
    source = "def {name}(add): add()\n"
    framework: dict[str, Any] = {"__name__": "lightning.pytorch"}
    for name in ("each_step", "each_epoch"):
        exec(compile(source.format(name=name), f"/env/{name}.py", "exec"), framework)  # noqa: S102 - fake of a framework
    sites = SiteTable()

    def add() -> None:
        sites.get("host_sync", "item", "", Origin.of(sys._getframe(1))).add(1, 0, "")

    for name in ("each_step", "each_step", "each_epoch"):
        framework[name](add)

    assert [(site.count, site.stack[0].function) for site in sites.sites()] == [(2, "each_step"), (1, "each_epoch")]


def test_loops_of_a_framework_above_a_line_share_a_site() -> None:
    framework: dict[str, Any] = {"__name__": "lightning.pytorch"}
    exec(compile("def once(call): call()\ndef again(call): call()\n", "/env/loop.py", "exec"), framework)  # noqa: S102 - as above
    sites = SiteTable()

    def training_step() -> None:
        _add(sites)

    for name in ("once", "again"):
        framework[name](training_step)

    assert [site.count for site in sites.sites()] == [2]


def test_operators_of_a_line_have_separate_sites() -> None:
    sites = SiteTable()
    for op in ("rare", "often", "often"):
        _add(sites, op=op)

    assert [(site.op, site.count) for site in sites.sites()] == [("often", 2), ("rare", 1)]


def test_cache_of_call_paths_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED", 3)
    sites = SiteTable()
    for index in range(10):
        _add(sites, op=str(index % 5))

    assert [site.count for site in sites.sites()] == [2, 2, 2, 2, 2]
    assert len(sites._cache) <= 3


def test_event_without_a_frame_is_counted() -> None:
    sites = SiteTable()
    sites.get("dtype", "mul", "float64", Origin.of(None, "Pow")).add(1, 0, "")

    (site,) = sites.sites()
    assert (site.frame, site.stack, site.backward) == (None, (), "Pow")


def test_site_without_events_is_omitted() -> None:
    """A recipe cache miss counts only once the graph ends."""
    sites = SiteTable()
    sites.get("compilation", "mul", "shapes", Origin.of(sys._getframe()))

    assert sites.sites() == ()


def test_number_of_sites_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SITES", 3)
    sites = SiteTable()
    for index in range(5):
        for _ in range(2):
            _add(sites, op=str(index))

    assert [site.count for site in sites.sites()] == [2, 2, 2]
    assert sites.dropped_events == 4


def test_maximum_per_step_excludes_the_first_step() -> None:
    counter = Site("host_sync", "item", "", None)
    for step in (1, 1, 1, 1, 3, 5, 5):
        counter.add(step, 0, "")

    assert (counter.count, counter.steps, counter.last_step) == (7, 3, 5)
    assert (counter.in_first_step, counter.max_per_step) == (4, 2)


def test_maximum_per_step_is_of_the_first_step_if_it_is_the_only_one() -> None:
    sites = SiteTable()
    for _ in range(4):
        _add(sites)

    assert sites.sites()[0].max_per_step == 4


def test_examples_are_distinct_and_limited() -> None:
    counter = Site("h2d", "copy", "pinned", None)
    for size in (1, 1, 2, 3, 4, 5, 6):
        counter.add(1, 0, f"Float[{size}]")

    assert counter.examples == [f"Float[{size}]" for size in range(1, MAX_EXAMPLES + 1)]
