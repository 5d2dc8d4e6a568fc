"""Analysis of one stage of one trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_profiler.analysis.device_events import collective_stats
from hpu_profiler.analysis.host_sync import host_syncs
from hpu_profiler.analysis.host_work import locations
from hpu_profiler.analysis.idle_time import idle_time
from hpu_profiler.analysis.kernels import engine_stats, moving_kernels, recipe_stats
from hpu_profiler.analysis.recompilation import compilation_stats, new_shapes
from hpu_profiler.trace.intervals import difference, intersection, length, union

if TYPE_CHECKING:
    from hpu_profiler.analysis.device_events import CollectiveStats
    from hpu_profiler.analysis.host_sync import HostSyncs
    from hpu_profiler.analysis.idle_time import IdleTime
    from hpu_profiler.analysis.kernels import EngineStats, MovingKernel, RecipeStats
    from hpu_profiler.analysis.recompilation import CompilationStats
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Trace, TraceInfo


@dataclass(frozen=True, slots=True)
class TraceAnalysis:
    """Results for one stage of one trace. Times are microseconds, fractions are parts of 1.

    Attributes:
        name: Name that is unique in the stage, such as "rank 0".
        trace: What the trace says of its process and its recording.
        has_device: Whether the trace has device events.
        steps: Number of recorded steps.
        duration: Time of the steps, without those of other stages between them.
        busy_time: Time in which the device did anything.
        idle: Time in which the device did nothing, by cause.
        comm_time: Time in collectives.
        exposed_comm: Exposed communication: the part of it in which no kernel ran.
        collectives: Totals by collective.
        host_syncs: Synchronizations of host and device.
        recipes: Totals by the bridge's graph.
        moving_kernels: Kernels that move data and compute nothing.
        compilations: Graph compilations.
        new_shapes: Number of steps with shapes that no earlier step had.
        new_shapes_location: The user's line of the first new shape; empty if the trace does not show it.
        engines: Totals by engine.
    """

    name: str
    trace: TraceInfo
    has_device: bool
    steps: int
    duration: float
    busy_time: float
    idle: IdleTime
    comm_time: float
    exposed_comm: float
    collectives: tuple[CollectiveStats, ...]
    host_syncs: HostSyncs
    recipes: tuple[RecipeStats, ...]
    moving_kernels: tuple[MovingKernel, ...]
    compilations: CompilationStats
    new_shapes: int
    new_shapes_location: str
    engines: tuple[EngineStats, ...]

    @property
    def step_time(self) -> float:
        """Mean duration of a step; 0 without steps."""
        return self.duration / self.steps if self.steps else 0.0

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
    windows = union(trace.windows)

    def running(kind: str = "") -> list[Interval]:
        return intersection(union(event.interval for event in events if kind in {"", event.kind}), windows)

    collectives = running("collective")
    shapes = new_shapes(trace)
    lines = locations(trace, ((each.thread, each.start) for each in shapes.operators))
    return TraceAnalysis(
        name=name,
        trace=trace.info,
        has_device=bool(events),
        steps=len(trace.steps),
        duration=length(trace.windows),
        busy_time=length(running()),
        idle=idle_time(trace),
        comm_time=length(collectives),
        exposed_comm=length(difference(collectives, running("kernel"))),
        collectives=collective_stats(events),
        host_syncs=host_syncs(trace),
        recipes=recipe_stats(events, trace.recipes),
        moving_kernels=moving_kernels(trace),
        compilations=compilation_stats(trace),
        new_shapes=shapes.steps,
        new_shapes_location=next(filter(None, lines), ""),
        engines=engine_stats(events),
    )
