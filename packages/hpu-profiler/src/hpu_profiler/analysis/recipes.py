"""Graphs of a trace: time by the bridge's recipe."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpu_profiler.analysis.merge import FIRST
from hpu_profiler.trace.intervals import length, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpu_profiler.trace.model import DeviceEvent

__all__ = ["RecipeStats", "recipe_stats"]


@dataclass(frozen=True, slots=True)
class RecipeStats:
    """Totals of one graph.

    Attributes:
        recipe: The bridge's number of the graph. It has 16 bits, so two graphs of a long run may share one.
        name: Its name.
        launches: Number of launches, as far as the trace shows them.
        events: Number of device events.
        busy_time: Time in which any of them ran, in microseconds.
        top_kernel: Name with most time.
    """

    recipe: int = field(metadata=FIRST)
    name: str
    launches: int
    events: int
    busy_time: float
    top_kernel: str


def recipe_stats(events: Iterable[DeviceEvent], names: Mapping[int, str]) -> tuple[RecipeStats, ...]:
    """Return the totals of each graph, longest time first.

    Args:
        events: Device events.
        names: Names of the graphs by number.
    """
    groups: dict[int, list[DeviceEvent]] = {}
    for event in events:
        if event.recipe:
            groups.setdefault(event.recipe, []).append(event)
    stats = []
    for recipe, group in groups.items():
        times: Counter[str] = Counter()
        for event in group:
            times[event.name] += event.duration  # type: ignore[assignment] # Counter adds floats as well.
        launches = {id(event.launch) for event in group if event.launch is not None}
        busy = length(union(event.interval for event in group))
        name = names.get(recipe, "")
        stats.append(RecipeStats(recipe, name, len(launches), len(group), busy, times.most_common(1)[0][0]))
    return tuple(sorted(stats, key=lambda each: -each.busy_time))
