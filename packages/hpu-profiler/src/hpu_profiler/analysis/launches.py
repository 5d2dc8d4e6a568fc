"""Launches of device events by the host, and their delays."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_profiler.trace.model import DeviceEvent, Launch

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
    launch_time: float = 0.0
    delay: float = 0.0
    max_delay: float = 0.0


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
