"""Host-device synchronizations: calls in which the host waits for a value from the device."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_profiler.analysis.host_work import is_data_loading, location_at, sync_operators
from hpu_profiler.analysis.idle_time import idle_intervals
from hpu_profiler.trace.intervals import difference, intersection, length, union

if TYPE_CHECKING:
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Operator, Trace

__all__ = ["HostSyncCost", "cost"]

#: Largest time from the end of a wait to the idle time that it causes, in microseconds.
_TOLERANCE = 50.0


@dataclass(frozen=True, slots=True)
class HostSyncCost:
    """Cost of the synchronizations in a trace.

    Attributes:
        calls: Number of calls.
        time: Idle time of the device during and after them, in microseconds.
        name: Name of the most frequent call.
        location: The user's line of its first call; empty if the trace does not show it.
    """

    calls: int = 0
    time: float = 0.0
    name: str = ""
    location: str = ""


def cost(trace: Trace) -> HostSyncCost:
    """Return the cost of the synchronizations of the thread that runs the steps."""
    ids = sync_operators(trace)
    outermost: list[Operator] = []
    for operator in trace.operators:
        is_sync = id(operator) in ids and operator.thread == trace.step_thread
        # aten::item calls aten::_local_scalar_dense.
        if is_sync and (not outermost or operator.start >= outermost[-1].end):
            outermost.append(operator)
    if not outermost:
        return HostSyncCost()
    name, _ = Counter(operator.name for operator in outermost).most_common(1)[0]
    first = next(operator for operator in outermost if operator.name == name)
    return HostSyncCost(
        len(outermost),
        _idle_time(trace, outermost),
        "." + name.removeprefix("aten::").lstrip("_") + "()",
        location_at(trace, first.thread, first.start),
    )


def _idle_time(trace: Trace, syncs: list[Operator]) -> float:
    gaps = idle_intervals(trace)
    waits: list[Interval] = [operator.interval for operator in syncs]
    # A simulated device is idle after each operator, because it computes on the host.
    if not trace.simulated:
        waits += _following_gaps(gaps, syncs)
    loading = union(span.interval for span in trace.spans if is_data_loading(span))
    return length(difference(intersection(gaps, union(waits)), loading))


def _following_gaps(gaps: list[Interval], syncs: list[Operator]) -> list[Interval]:
    """Return the idle time after each wait, until the host has launched new work."""
    following = []
    index = 0
    for operator in syncs:
        while index < len(gaps) and gaps[index][1] <= operator.end:
            index += 1
        if index < len(gaps) and gaps[index][0] <= operator.end + _TOLERANCE:
            following.append(gaps[index])
    return following
