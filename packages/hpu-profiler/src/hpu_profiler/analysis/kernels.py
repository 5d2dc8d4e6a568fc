"""Kernels of a trace: time by engine, by the bridge's graph and by name."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.device_events import busy_time, grouped
from hpu_profiler.analysis.host_work import locations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpu_profiler.trace.model import DeviceEvent, Trace

_ENGINE_OF_KIND: Final = {"collective": "NIC", "memcpy": "DMA", "memset": "DMA"}
#: Nodes that move data only: the bridge's of `expand`, and transpositions by a copy engine.
_MOVING_RE: Final = re.compile(r"^(broadcast|DmaTranspose|dma_?transpose)", re.IGNORECASE)
_TOP_KERNELS: Final = 10


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Totals of one engine.

    Attributes:
        engine: MME (matrices), TPC (vectors), DMA (copies), NIC (network), ...; "compute" if the trace names none.
        events: Number of events.
        time: Sum of their durations, in microseconds.
        busy_time: Time in which any of them ran.
        top_kernels: Names with most time, with their calls and time.
    """

    engine: str
    events: int
    time: float
    busy_time: float
    top_kernels: tuple[tuple[str, int, float], ...]


@dataclass(frozen=True, slots=True)
class MovingKernel:
    """Kernel that moves data and computes nothing.

    Attributes:
        name: Name in the trace.
        calls: Number of events.
        time: Time in which any of them ran, in microseconds.
        location: The user's line of the first one; empty if the trace does not show it.
    """

    name: str
    calls: int
    time: float
    location: str


@dataclass(frozen=True, slots=True)
class RecipeStats:
    """Totals of one graph.

    Attributes:
        recipe: The bridge's number of the graph. It has 16 bits, so two graphs of a long run may share one.
        name: Its name.
        events: Number of device events.
        busy_time: Time in which any of them ran, in microseconds.
        top_kernel: Name with most time.
    """

    recipe: int
    name: str
    events: int
    busy_time: float
    top_kernel: str


def engine_name(event: DeviceEvent) -> str:
    """Return the engine that runs an event; that of another device by the kind of work."""
    return _ENGINE_OF_KIND.get(event.kind, event.engine) if event.engine == "compute" else event.engine


def engine_stats(events: Iterable[DeviceEvent]) -> tuple[EngineStats, ...]:
    """Return the totals of each engine, longest time first."""
    stats = []
    for engine, group in grouped((engine_name(event), event) for event in events).items():
        calls = Counter(event.name for event in group)
        top = tuple((name, calls[name], time) for name, time in _longest(group))
        stats.append(EngineStats(engine, len(group), sum(event.duration for event in group), busy_time(group), top))
    return tuple(sorted(stats, key=lambda each: -each.time))


def recipe_stats(events: Iterable[DeviceEvent], names: Mapping[int, str]) -> tuple[RecipeStats, ...]:
    """Return the totals of each graph, longest time first; the names are those of the graphs by number."""
    stats = []
    for recipe, group in grouped((event.recipe, event) for event in events if event.recipe).items():
        (top, _), *_ = _longest(group)
        stats.append(RecipeStats(recipe, names.get(recipe, ""), len(group), busy_time(group), top))
    return tuple(sorted(stats, key=lambda each: -each.busy_time))


def moving_kernels(trace: Trace) -> tuple[MovingKernel, ...]:
    """Return the kernels that move data and compute nothing, longest time first."""
    kernels = [event for event in trace.device_events if event.kind == "kernel"]
    moving = {name for name in {event.name for event in kernels} if _MOVING_RE.match(name)}
    found = []
    for name, group in grouped((event.name, event) for event in kernels if event.name in moving).items():
        operators = [event.operator for event in group if event.operator is not None]
        location = next(filter(None, locations(trace, ((each.thread, each.start) for each in operators))), "")
        found.append(MovingKernel(name, len(group), busy_time(group), location))
    return tuple(sorted(found, key=lambda each: -each.time))


def _longest(events: Iterable[DeviceEvent]) -> list[tuple[str, float]]:
    """Return the names with most time, longest first."""
    times: dict[str, float] = {}
    for event in events:
        times[event.name] = times.get(event.name, 0.0) + event.duration
    return sorted(times.items(), key=lambda pair: -pair[1])[:_TOP_KERNELS]
