"""Idle time of the device, attributed to what the host did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from hpu_profiler.analysis.host_work import Category, HostWork, host_work
from hpu_profiler.trace.intervals import difference, intersection, length, union

if TYPE_CHECKING:
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Trace

#: A compilation takes precedence over the host work that waits for it.
IdleCause = Literal["compilation", Category]
IDLE_CAUSES: Final[tuple[IdleCause, ...]] = get_args(IdleCause)


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of the device in a trace, in microseconds.

    Attributes:
        by_cause: Idle time by cause; empty if the trace has no device.
        host_work: Work of the thread that runs the steps, with its part in the idle time.
    """

    by_cause: dict[IdleCause, float]
    host_work: tuple[HostWork, ...] = ()

    @property
    def total(self) -> float:
        """Sum over all causes."""
        return sum(self.by_cause.values())


def idle_time(trace: Trace) -> IdleTime:
    """Return how long the device was idle, by cause."""
    if not trace.device_events:
        return IdleTime({}, host_work(trace, []))
    idle = idle_intervals(trace)
    compilations = union(span.interval for span in trace.compilations)
    by_cause: dict[IdleCause, float] = dict.fromkeys(IDLE_CAUSES, 0.0)
    by_cause["compilation"] = length(intersection(idle, compilations))
    work = host_work(trace, difference(idle, compilations))
    for row in work:
        by_cause[row.owner.category] += row.idle
    return IdleTime(by_cause, work)


def idle_intervals(trace: Trace) -> list[Interval]:
    """Return the time within the windows of a trace in which the device was idle, as disjoint intervals."""
    return difference(union(trace.windows), union(event.interval for event in trace.device_events))
