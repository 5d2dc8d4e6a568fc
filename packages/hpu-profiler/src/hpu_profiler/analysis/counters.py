"""Counters of a trace: samples that the writer recorded, and the bandwidth of copies and collectives."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.merge import MAX, MEAN, MIN
from hpu_profiler.trace.intervals import length, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Counter, DeviceEvent

__all__ = ["GB_PER_S", "Bandwidth", "CounterStats", "bandwidth", "counter_stats"]

#: Bytes per microsecond to GB/s.
GB_PER_S: Final = 1e-3


@dataclass(frozen=True, slots=True)
class CounterStats:
    """Statistics of a counter.

    Attributes:
        name: Name of the counter.
        samples: Number of samples.
        min: Smallest value.
        mean: Mean of the samples.
        max: Largest value.
    """

    name: str
    samples: int
    min: float = field(metadata=MIN)
    mean: float = field(metadata=MEAN)
    max: float = field(metadata=MAX)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Rate of a group of device events that move data.

    Attributes:
        mean: Bytes by the time in which any of the events ran, in GB/s.
        max: Largest rate of one event, in GB/s.
    """

    mean: float = field(metadata=MEAN)
    max: float = field(metadata=MAX)


def counter_stats(counters: Mapping[str, Counter], windows: Iterable[Interval]) -> tuple[CounterStats, ...]:
    """Return the statistics of each counter within time ranges."""
    windows = list(windows)
    stats = []
    for name, samples in counters.items():
        values = [value for time, value in samples if any(start <= time < end for start, end in windows)]
        if values:
            stats.append(CounterStats(name, len(values), min(values), statistics.fmean(values), max(values)))
    return tuple(stats)


def bandwidth(events: Iterable[DeviceEvent]) -> Bandwidth | None:
    """Return the rate of a group of events; None if none of them has a size and a duration."""
    timed = [event for event in events if event.bytes and event.duration]
    if not timed:
        return None
    busy = length(union(event.interval for event in timed))
    return Bandwidth(
        sum(event.bytes for event in timed) / busy * GB_PER_S,
        max(event.bytes / event.duration for event in timed) * GB_PER_S,
    )
