"""Launches of device events by the host: delays, and the length of the device's queue."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.merge import MAX, MEAN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Counter, DeviceEvent, Launch

__all__ = ["LaunchStats", "QueueStats", "launch_stats", "queue_length", "queue_stats"]

#: Duration below which a kernel costs more to launch than to run, in microseconds. HTA uses the same limit.
_SHORT_KERNEL: Final = 5.0


@dataclass(frozen=True, slots=True)
class LaunchStats:
    """Statistics of the launches, times in microseconds.

    Attributes:
        launches: Number of launches. A graph has one for all of its kernels.
        kernels: Number of kernels with a launch.
        short_kernels: Number of kernels that are too short to be worth their launch.
        launch_time: Median duration of the runtime call.
        delay: Median time from the end of the call to the start on the device.
        max_delay: Longest such time.
    """

    launches: int = 0
    kernels: int = 0
    short_kernels: int = 0
    launch_time: float = field(default=0.0, metadata=MEAN)
    delay: float = field(default=0.0, metadata=MEAN)
    max_delay: float = field(default=0.0, metadata=MAX)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Number of launches whose work has not ended.

    Attributes:
        mean: Mean over time.
        max: Largest number.
        empty_fraction: Fraction of the time in which nothing was queued.
    """

    mean: float = field(default=0.0, metadata=MEAN)
    max: int = field(default=0, metadata=MAX)
    empty_fraction: float = field(default=0.0, metadata=MEAN)


def launch_stats(events: Iterable[DeviceEvent]) -> LaunchStats:
    """Return the statistics of the launches; zeros if the trace has no launches."""
    pairs = [(event, event.launch) for event in events if event.launch is not None]
    if not pairs:
        return LaunchStats()
    first: dict[int, tuple[Launch, float]] = {}
    for event, launch in pairs:
        first.setdefault(id(launch), (launch, max(event.start - launch.end, 0.0)))
    delays = [delay for _, delay in first.values()]
    return LaunchStats(
        launches=len(first),
        kernels=sum(event.kind == "kernel" for event, _ in pairs),
        short_kernels=sum(event.kind == "kernel" and event.duration < _SHORT_KERNEL for event, _ in pairs),
        launch_time=statistics.median(launch.duration for launch, _ in first.values()),
        delay=statistics.median(delays),
        max_delay=max(delays),
    )


def queue_length(events: Iterable[DeviceEvent]) -> Counter:
    """Return the number of launches whose work has not ended, at each time it changes."""
    changes: dict[float, int] = {}
    ends: dict[int, tuple[Launch, float]] = {}
    for event in events:
        if event.launch is not None:
            # A graph has one launch and many events.
            _, end = ends.get(id(event.launch), (None, event.launch.start))
            ends[id(event.launch)] = event.launch, max(end, event.end)
    for launch, end in ends.values():
        changes[launch.start] = changes.get(launch.start, 0) + 1
        changes[end] = changes.get(end, 0) - 1
    samples = []
    queued = 0
    for time in sorted(changes):
        queued += changes[time]
        samples.append((time, float(queued)))
    return samples


def queue_stats(samples: Counter, windows: Iterable[Interval]) -> QueueStats:
    """Return the statistics of a queue within time ranges."""
    total = weighted = empty = 0.0
    largest = 0
    index = 0
    queued = 0.0
    for start, end in windows:
        position = start
        while True:
            while index < len(samples) and samples[index][0] <= position:
                queued = samples[index][1]
                index += 1
            following = min(samples[index][0], end) if index < len(samples) else end
            total += following - position
            weighted += queued * (following - position)
            empty += (following - position) * (queued == 0)
            largest = max(largest, int(queued))
            if following >= end:
                break
            position = following
    return QueueStats(weighted / total, largest, empty / total) if total and samples else QueueStats()
