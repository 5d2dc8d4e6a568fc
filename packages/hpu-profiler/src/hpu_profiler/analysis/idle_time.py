"""Idle time of the device, attributed to what the host did meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hpu_profiler.trace.call_stack import self_intervals
from hpu_profiler.trace.intervals import difference, intersection, length, union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import HostSpan, Trace

__all__ = ["IDLE_CAUSES", "OTHER_HOST_WORK", "IdleCause", "IdleTime", "host_activity", "idle_time"]

IdleCause = Literal["compilation", "data loading", "host sync", "other host work"]
#: Cause of the idle time that has none of the other causes.
OTHER_HOST_WORK: Final = "other host work"
#: In order of precedence: of two causes at the same time, the first one counts.
IDLE_CAUSES: Final[tuple[IdleCause, ...]] = ("compilation", "data loading", "host sync", OTHER_HOST_WORK)

# Lightning's actions and torch's annotation.
_DATA_LOADING_RE: Final = re.compile(
    r"dataloader_next$|\.(val|test|predict|sanity_check)_next$|^enumerate\(DataLoader\)"
)
# Operators that copy a value to the host, and calls of the bridge where they are logged.
_SYNC_OPERATORS: Final = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero"})
_SYNC_RE: Final = re.compile(r"synchroni[sz]e|(^|_)wait", re.IGNORECASE)
_ACTION_PREFIX: Final = "[pl][profile]"


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of the device in a trace, in microseconds.

    Attributes:
        by_cause: Idle time by cause; empty if the trace has no device.
        by_action: Idle time of the cause "other host work", by the innermost of Lightning's or the user's actions that
            ran meanwhile, longest first.
    """

    by_cause: dict[IdleCause, float]
    by_action: tuple[tuple[str, float], ...] = ()

    @property
    def total(self) -> float:
        """Sum over all causes."""
        return sum(self.by_cause.values())


def idle_time(trace: Trace) -> IdleTime:
    """Return how long the device was idle, by cause."""
    if not trace.device_events:
        return IdleTime({})
    gaps = difference([trace.window], union(event.interval for event in trace.device_events))
    by_cause: dict[IdleCause, float] = {}
    for cause, spans in host_activity(trace).items():
        active = union(span.interval for span in spans)
        by_cause[cause] = length(intersection(gaps, active))
        gaps = difference(gaps, active)
    by_cause[OTHER_HOST_WORK] = length(gaps)
    return IdleTime(by_cause, _by_action(trace, gaps))


def host_activity(trace: Trace) -> dict[IdleCause, Sequence[HostSpan]]:
    """Return the host spans that can leave the device idle, by cause, in order of precedence."""
    return {
        "compilation": trace.compilations,
        "data loading": [span for span in trace.spans if _DATA_LOADING_RE.search(span.name)],
        "host sync": [
            *(operator for operator in trace.operators if operator.name in _SYNC_OPERATORS),
            *(span for span in trace.spans if _SYNC_RE.search(span.name)),
        ],
    }


def _by_action(trace: Trace, gaps: list[Interval]) -> tuple[tuple[str, float], ...]:
    """Return the time of gaps by the innermost action of the thread that runs the steps."""
    if not gaps or not trace.steps:
        return ()
    thread = trace.steps[0].thread
    actions = [span for span in trace.spans if span.thread == thread and span.name.startswith(_ACTION_PREFIX)]
    times = {
        name.removeprefix(_ACTION_PREFIX): length(intersection(union(intervals), gaps))
        for name, intervals in self_intervals(actions).items()
    }
    return tuple(sorted(((name, time) for name, time in times.items() if time), key=lambda pair: -pair[1]))
