"""Analysis of one stage of one trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_profiler.analysis.counters import counter_stats
from hpu_profiler.analysis.device_events import collective_stats, memcpy_stats
from hpu_profiler.analysis.idle_time import idle_time
from hpu_profiler.analysis.kernels import engine_stats, kernel_patterns
from hpu_profiler.analysis.launches import launch_stats, queue_length, queue_stats
from hpu_profiler.analysis.recompilation import compilation_stats, new_shapes
from hpu_profiler.trace.intervals import intersection, length, union

if TYPE_CHECKING:
    from hpu_profiler.analysis.counters import CounterStats
    from hpu_profiler.analysis.device_events import DeviceEventStats
    from hpu_profiler.analysis.idle_time import IdleTime
    from hpu_profiler.analysis.kernels import EngineStats, KernelPattern
    from hpu_profiler.analysis.launches import LaunchStats, QueueStats
    from hpu_profiler.analysis.recompilation import CompilationStats, NewShapes
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Trace

__all__ = ["TraceAnalysis", "analyze_trace"]


@dataclass(frozen=True, slots=True)
class TraceAnalysis:
    """Results for one stage of one trace. Times are microseconds, fractions are parts of 1.

    Attributes:
        name: Name that is unique in the stage, such as "rank 0".
        trace: The trace.
        duration: Time of the steps, without those of other stages between them.
        busy_time: Time in which the device did anything.
        compute_time: Time in which a kernel ran.
        idle: Time in which the device did nothing, by cause.
        comm_time: Time in collectives.
        comm_overlap: Part of `comm_time` in which kernels ran.
        collectives: Totals by collective.
        memcpy: Totals of copies by direction.
        compilations: Graph compilations.
        new_shapes: Steps with shapes that no earlier step had.
        engines: Totals by engine.
        patterns: Sequences of kernels that repeat.
        launches: Statistics of the launches.
        queue: Length of the device's queue.
        counters: Statistics of the recorded counters.
    """

    name: str
    trace: Trace
    duration: float
    busy_time: float
    compute_time: float
    idle: IdleTime
    comm_time: float
    comm_overlap: float
    collectives: tuple[DeviceEventStats, ...]
    memcpy: tuple[DeviceEventStats, ...]
    compilations: CompilationStats
    new_shapes: NewShapes
    engines: tuple[EngineStats, ...]
    patterns: tuple[KernelPattern, ...]
    launches: LaunchStats
    queue: QueueStats
    counters: tuple[CounterStats, ...]

    @property
    def has_device(self) -> bool:
        """Whether the trace has device events."""
        return bool(self.trace.device_events)

    @property
    def own_counters(self) -> list[CounterStats]:
        """Counters that the program recorded, without those of allocated memory."""
        return [each for each in self.counters if not each.name.startswith("memory ")]

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
    """Return the results for one stage of one trace.

    Args:
        trace: Result of `split_stages`.
        name: Name of the trace in the report.
    """
    events = trace.device_events
    collectives = _covered(trace, [event.interval for event in events if event.kind == "collective"])
    kernels = _covered(trace, [event.interval for event in events if event.kind == "kernel"])
    return TraceAnalysis(
        name=name,
        trace=trace,
        duration=length(trace.windows),
        busy_time=length(_covered(trace, [event.interval for event in events])),
        compute_time=length(kernels),
        idle=idle_time(trace),
        comm_time=length(collectives),
        comm_overlap=length(intersection(collectives, kernels)),
        collectives=collective_stats(events),
        memcpy=memcpy_stats(events),
        compilations=compilation_stats(trace),
        new_shapes=new_shapes(trace),
        engines=engine_stats(events),
        patterns=kernel_patterns(events),
        launches=launch_stats(events),
        queue=queue_stats(queue_length(events), trace.windows),
        counters=counter_stats(trace.counters, trace.windows),
    )


def _covered(trace: Trace, intervals: list[Interval]) -> list[Interval]:
    return intersection(union(intervals), union(trace.windows))
