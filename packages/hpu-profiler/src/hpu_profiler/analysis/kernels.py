"""Kernels of a trace: time by engine, time by name, and sequences that repeat."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.host_work import locations
from hpu_profiler.trace.intervals import length, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_profiler.trace.model import DeviceEvent, Trace

__all__ = [
    "EngineStats",
    "KernelPattern",
    "MovingKernel",
    "engine_name",
    "engine_stats",
    "kernel_patterns",
    "moving_kernels",
]

_ENGINE_OF_KIND: Final = {"collective": "NIC", "memcpy": "DMA", "memset": "DMA"}
#: Nodes that move data only: the bridge's of `expand`, and transpositions by a copy engine.
_MOVING_RE: Final = re.compile(r"^(broadcast|DmaTranspose|dma_?transpose)", re.IGNORECASE)
_PATTERN_LENGTHS: Final = (3, 4, 5)
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
class KernelPattern:
    """Sequence of kernels that repeats, a candidate for fusion or `torch.compile`.

    Attributes:
        kernels: Names in order.
        count: Number of occurrences that do not overlap.
        time: Sum of the durations of its kernels.
    """

    kernels: tuple[str, ...]
    count: int
    time: float


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


def engine_name(event: DeviceEvent) -> str:
    """Return the engine that runs an event; that of another device by the kind of work."""
    return _ENGINE_OF_KIND.get(event.kind, event.engine) if event.engine == "compute" else event.engine


def engine_stats(events: Iterable[DeviceEvent]) -> tuple[EngineStats, ...]:
    """Return the totals of each engine, longest time first."""
    groups: dict[str, list[DeviceEvent]] = {}
    for event in events:
        groups.setdefault(engine_name(event), []).append(event)
    stats = []
    for engine, group in groups.items():
        times: Counter[str] = Counter()
        for event in group:
            times[event.name] += event.duration  # type: ignore[assignment] # Counter adds floats as well.
        calls = Counter(event.name for event in group)
        top = tuple((name, calls[name], float(time)) for name, time in times.most_common(_TOP_KERNELS))
        busy = length(union(event.interval for event in group))
        stats.append(EngineStats(engine, len(group), sum(event.duration for event in group), busy, top))
    return tuple(sorted(stats, key=lambda each: -each.time))


def moving_kernels(trace: Trace) -> tuple[MovingKernel, ...]:
    """Return the kernels that move data and compute nothing, longest time first."""
    groups: dict[str, list[DeviceEvent]] = {}
    names = {event.name for event in trace.device_events if event.kind == "kernel"}
    moving = {name for name in names if _MOVING_RE.match(name)}
    for event in trace.device_events:
        if event.kind == "kernel" and event.name in moving:
            groups.setdefault(event.name, []).append(event)
    found = []
    for name, group in groups.items():
        operators = [event.operator for event in group if event.operator is not None]
        location = next(filter(None, locations(trace, ((each.thread, each.start) for each in operators))), "")
        found.append(MovingKernel(name, len(group), length(union(event.interval for event in group)), location))
    return tuple(sorted(found, key=lambda each: -each.time))


def kernel_patterns(events: Iterable[DeviceEvent], limit: int = 5) -> tuple[KernelPattern, ...]:
    """Return the sequences of compute kernels that repeat, longest total time first.

    Args:
        events: Device events, ordered by start.
        limit: Number of patterns to return. A pattern within another one with the same count is left out.
    """
    kernels = [event for event in events if event.kind == "kernel"]
    names = [event.name for event in kernels]
    found: list[KernelPattern] = []
    for size in reversed(_PATTERN_LENGTHS):
        longest = sorted(_patterns(kernels, names, size), key=lambda each: -each.time)[: 4 * limit]
        found += [pattern for pattern in longest if not _is_part(pattern, found)]
    return tuple(sorted(found, key=lambda each: -each.time)[:limit])


def _patterns(kernels: Sequence[DeviceEvent], names: Sequence[str], size: int) -> list[KernelPattern]:
    found: dict[tuple[str, ...], list[int]] = {}
    for index, key in enumerate(zip(*(names[offset:] for offset in range(size)), strict=False)):
        starts = found.setdefault(key, [])
        if not starts or index >= starts[-1] + size:
            starts.append(index)
    # Time from the first kernel up to each one.
    sums = [0.0, *itertools.accumulate(kernel.duration for kernel in kernels)]
    return [
        KernelPattern(key, len(starts), sum(sums[start + size] - sums[start] for start in starts))
        for key, starts in found.items()
        if len(starts) > 1
    ]


def _is_part(pattern: KernelPattern, others: Iterable[KernelPattern]) -> bool:
    text = "\n".join(pattern.kernels)
    return any(other.count >= pattern.count and text in "\n".join(other.kernels) for other in others)
