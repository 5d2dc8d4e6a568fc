"""Analysis of one trace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.device_events import collective_stats, memcpy_stats
from hpu_profiler.analysis.idle_time import idle_time
from hpu_profiler.trace.intervals import intersection, length, union

if TYPE_CHECKING:
    from hpu_profiler.analysis.device_events import DeviceEventStats
    from hpu_profiler.analysis.idle_time import IdleTime
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Trace

__all__ = ["CompilationStats", "TraceAnalysis", "analyze_trace"]

_RECOMPILE_RE: Final = re.compile(r"recompil", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CompilationStats:
    """Graph compilations in a trace.

    Attributes:
        count: Number of compiled graphs, from the bridge's metric or from the trace, whichever has more.
        recompilations: Number of graphs compiled again for other shapes, as far as the trace shows them.
        time: Time in compilations, as far as the trace shows them, in microseconds.
    """

    count: int
    recompilations: int
    time: float


@dataclass(frozen=True, slots=True)
class TraceAnalysis:
    """Results for one trace. Times are microseconds, fractions are parts of 1.

    Attributes:
        name: Name that is unique in the report, such as "rank 0".
        trace: The trace.
        duration: Time from the start of the first step to the end of the last one.
        busy_time: Time in which the device did anything.
        idle: Time in which the device did nothing, by cause.
        comm_time: Time in collectives.
        comm_overlap: Part of `comm_time` in which kernels ran.
        collectives: Totals by collective.
        memcpy: Totals of copies by direction.
        compilations: Graph compilations.
    """

    name: str
    trace: Trace
    duration: float
    busy_time: float
    idle: IdleTime
    comm_time: float
    comm_overlap: float
    collectives: tuple[DeviceEventStats, ...]
    memcpy: tuple[DeviceEventStats, ...]
    compilations: CompilationStats

    @property
    def has_device(self) -> bool:
        """Whether the trace has device events."""
        return bool(self.trace.device_events)

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return len(self.trace.steps)

    @property
    def step_time(self) -> float:
        """Mean duration of a step; 0 without steps."""
        return self.duration / self.steps if self.steps else 0.0

    @property
    def exposed_comm(self) -> float:
        """Exposed communication: time in collectives while no kernel ran."""
        return self.comm_time - self.comm_overlap

    @property
    def exposed_comm_per_step(self) -> float:
        """Exposed communication per step: transfers, and waiting for other ranks."""
        return self.exposed_comm / self.steps if self.steps else 0.0

    @property
    def step_time_excl_comm_wait(self) -> float:
        """Mean duration of a step without exposed communication."""
        return self.step_time - self.exposed_comm_per_step

    @property
    def idle_fraction(self) -> float:
        """Fraction of the duration in which the device was idle."""
        return self.idle.total / self.duration if self.duration else 0.0


def analyze_trace(trace: Trace, name: str) -> TraceAnalysis:
    """Return the results for one trace.

    Args:
        trace: Trace to analyze.
        name: Name of the trace in the report.
    """
    window = [trace.window]
    events = trace.device_events
    collectives = _covered(trace, [event.interval for event in events if event.kind == "collective"])
    kernels = _covered(trace, [event.interval for event in events if event.kind == "kernel"])
    return TraceAnalysis(
        name=name,
        trace=trace,
        duration=length(window),
        busy_time=length(_covered(trace, [event.interval for event in events])),
        idle=idle_time(trace),
        comm_time=length(collectives),
        comm_overlap=length(intersection(collectives, kernels)),
        collectives=collective_stats(events),
        memcpy=memcpy_stats(events),
        compilations=_compilation_stats(trace),
    )


def _covered(trace: Trace, intervals: list[Interval]) -> list[Interval]:
    return intersection(union(intervals), [trace.window])


def _compilation_stats(trace: Trace) -> CompilationStats:
    metric = trace.bridge_metrics.get("graph_compilation", {})
    # The unit of the metric's TotalTime is unknown, so the time is that of the trace.
    return CompilationStats(
        count=max(int(metric.get("TotalNumber", 0)), len(trace.compilations)),
        recompilations=sum(bool(_RECOMPILE_RE.search(span.name)) for span in trace.compilations),
        time=length(union(span.interval for span in trace.compilations)),
    )
