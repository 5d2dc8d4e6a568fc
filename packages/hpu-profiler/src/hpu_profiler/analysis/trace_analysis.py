"""Analysis of one stage of one trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_profiler.analysis.device_events import collective_stats, memcpy_stats
from hpu_profiler.analysis.host_sync import host_syncs
from hpu_profiler.analysis.host_work import locations
from hpu_profiler.analysis.idle_time import idle_time
from hpu_profiler.analysis.kernels import engine_stats, moving_kernels, recipe_stats
from hpu_profiler.analysis.launches import launch_stats
from hpu_profiler.analysis.recompilation import compilation_stats, new_shapes
from hpu_profiler.analysis.steps import step_stats
from hpu_profiler.trace.intervals import intersection, length, union

if TYPE_CHECKING:
    from hpu_profiler.analysis.device_events import DeviceEventStats
    from hpu_profiler.analysis.host_sync import HostSyncs
    from hpu_profiler.analysis.idle_time import IdleTime
    from hpu_profiler.analysis.kernels import EngineStats, MovingKernel, RecipeStats
    from hpu_profiler.analysis.launches import LaunchStats
    from hpu_profiler.analysis.recompilation import CompilationStats
    from hpu_profiler.analysis.steps import StepStats
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Trace, TraceInfo


@dataclass(frozen=True, slots=True)
class TraceAnalysis:
    """Results for one stage of one trace. Times are microseconds, fractions are parts of 1.

    Attributes:
        name: Name that is unique in the stage, such as "rank 0".
        trace: What the trace says of its process and its recording.
        has_device: Whether the trace has device events.
        step_stats: The steps one by one.
        duration: Time of the steps, without those of other stages between them.
        busy_time: Time in which the device did anything.
        compute_time: Time in which a kernel ran.
        idle: Time in which the device did nothing, by cause.
        comm_time: Time in collectives.
        comm_overlap: Part of `comm_time` in which kernels ran.
        collectives: Totals by collective.
        memcpy: Totals of copies by direction.
        host_syncs: Synchronizations of host and device.
        recipes: Totals by the bridge's graph.
        moving_kernels: Kernels that move data and compute nothing.
        compilations: Graph compilations.
        new_shapes: Number of steps with shapes that no earlier step had.
        new_shapes_location: The user's line of the first new shape; empty if the trace does not show it.
        engines: Totals by engine.
        launches: Statistics of the launches.
    """

    name: str
    trace: TraceInfo
    has_device: bool
    step_stats: tuple[StepStats, ...]
    duration: float
    busy_time: float
    compute_time: float
    idle: IdleTime
    comm_time: float
    comm_overlap: float
    collectives: tuple[DeviceEventStats, ...]
    memcpy: tuple[DeviceEventStats, ...]
    host_syncs: HostSyncs
    recipes: tuple[RecipeStats, ...]
    moving_kernels: tuple[MovingKernel, ...]
    compilations: CompilationStats
    new_shapes: int
    new_shapes_location: str
    engines: tuple[EngineStats, ...]
    launches: LaunchStats

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return len(self.step_stats)

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
    windows = union(trace.windows)

    def covered(kinds: set[str]) -> list[Interval]:
        return intersection(union(event.interval for event in events if event.kind in kinds), windows)

    collectives, kernels = covered({"collective"}), covered({"kernel"})
    working = covered({"kernel", "memcpy", "memset", "other"})
    shapes = new_shapes(trace)
    lines = locations(trace, ((each.thread, each.start) for each in shapes.operators))
    return TraceAnalysis(
        name=name,
        trace=trace.info,
        has_device=bool(events),
        step_stats=step_stats(trace.steps, windows, working, collectives),
        duration=length(trace.windows),
        busy_time=length(union([*working, *collectives])),
        compute_time=length(kernels),
        idle=idle_time(trace),
        comm_time=length(collectives),
        comm_overlap=length(intersection(collectives, kernels)),
        collectives=collective_stats(events),
        memcpy=memcpy_stats(events),
        host_syncs=host_syncs(trace),
        recipes=recipe_stats(events, trace.recipes),
        moving_kernels=moving_kernels(trace),
        compilations=compilation_stats(trace),
        new_shapes=shapes.steps,
        new_shapes_location=next(filter(None, lines), ""),
        engines=engine_stats(events),
        launches=launch_stats(events),
    )
