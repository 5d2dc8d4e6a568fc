"""Host-device synchronizations: calls in which the host waits for a value from the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.host_work import enclosing_actions, is_data_loading, locations, sync_spans
from hpu_profiler.analysis.idle_time import idle_intervals
from hpu_profiler.trace.intervals import difference, intersection, length, union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import HostSpan, Trace

#: Largest time from the end of a wait to the idle time that it causes, in microseconds.
_TOLERANCE: Final = 50.0


@dataclass(frozen=True, slots=True)
class SyncSite:
    """Line of the program that makes the host wait for the device.

    Attributes:
        name: What the program calls, such as ".item()".
        location: The line of the call, or without stacks of the hook around it, as "file:line function"; empty if the
            trace shows neither.
        action: Lightning's action around the call; empty without one.
        calls: Number of calls.
        time: Idle time of the device during and after them, in microseconds.
    """

    name: str
    location: str
    action: str
    calls: int
    time: float


@dataclass(frozen=True, slots=True)
class HostSyncs:
    """Synchronizations of a trace.

    Attributes:
        calls: Number of calls.
        time: Idle time of the device during and after them, in microseconds.
        sites: Lines that make them, longest time first.
        has_lines: Whether the trace has the lines of the calls, and not only of the hooks around them.
    """

    calls: int = 0
    time: float = 0.0
    sites: tuple[SyncSite, ...] = ()
    has_lines: bool = False


def host_syncs(trace: Trace) -> HostSyncs:
    """Return the synchronizations of the thread that runs the steps."""
    syncs = sync_spans(trace)
    if not syncs:
        return HostSyncs()
    idle = idle_intervals(trace)
    loading = union(span.interval for span in trace.spans if is_data_loading(span))
    around = locations(trace, ((span.thread, span.start) for span, _ in syncs))
    actions = enclosing_actions(trace, syncs[0][0].thread, (span.start for span, _ in syncs))
    groups: dict[tuple[str, str, str], list[HostSpan]] = {}
    for (span, name), location, action in zip(syncs, around, actions, strict=True):
        groups.setdefault((name, getattr(span, "location", "") or location, action), []).append(span)

    def idle_time(spans: Sequence[HostSpan]) -> float:
        return length(difference(intersection(idle, union(_waits(trace, idle, spans))), loading))

    sites = [SyncSite(*key, len(spans), idle_time(spans)) for key, spans in groups.items()]
    return HostSyncs(
        len(syncs),
        idle_time([span for span, _ in syncs]),
        tuple(sorted(sites, key=lambda site: (-site.time, -site.calls))),
        any(call.location for call in trace.sync_calls),
    )


def _waits(trace: Trace, idle: list[Interval], syncs: Sequence[HostSpan]) -> list[Interval]:
    """Return the time in the calls, and the idle time after each of them, until the host has launched new work."""
    waits: list[Interval] = [span.interval for span in syncs]
    # A simulated device is idle after each operator, because it computes on the host.
    if trace.simulated:
        return waits
    index = 0
    for span in syncs:
        while index < len(idle) and idle[index][1] <= span.end:
            index += 1
        if index < len(idle) and idle[index][0] <= span.end + _TOLERANCE:
            waits.append(idle[index])
    return waits
