"""Difference between two jobs: steps, host work and operators, per step so that runs of any length compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpu_profiler.analysis.job import JobAnalysis, StageAnalysis
    from hpu_profiler.trace.model import Stage


@dataclass(frozen=True, slots=True)
class Change:
    """Value of two jobs.

    Attributes:
        name: Name of the operator, the cause of idle time, or the kind of time.
        before: Microseconds per step in the first job.
        after: Microseconds per step in the second job.
        calls_before: Calls per step in the first job; 0 for times that are not of calls.
        calls_after: Calls per step in the second job.
    """

    name: str
    before: float
    after: float
    calls_before: float = 0.0
    calls_after: float = 0.0

    @property
    def difference(self) -> float:
        """Microseconds per step that the second job takes longer."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class StageDiff:
    """Differences in one stage.

    Attributes:
        stage: The stage.
        times: Step time and its parts, in a fixed order.
        operators: Operators with a different time or number of calls, largest difference first.
    """

    stage: Stage
    times: tuple[Change, ...]
    operators: tuple[Change, ...]


def diff_jobs(before: JobAnalysis, after: JobAnalysis) -> tuple[StageDiff, ...]:
    """Return the differences in each stage that both jobs have."""
    others = {stage.stage: stage for stage in after.stages}
    return tuple(
        StageDiff(stage.stage, _times(stage, others[stage.stage]), _operators(stage, others[stage.stage]))
        for stage in before.stages
        if stage.stage in others
    )


def _times(before: StageAnalysis, after: StageAnalysis) -> tuple[Change, ...]:
    one, other = _time_by_name(before), _time_by_name(after)
    return tuple(Change(name, one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other})


def _time_by_name(stage: StageAnalysis) -> dict[str, float]:
    steps = _steps(stage)
    times = {
        "step": sum(each.duration for each in stage.traces) / steps,
        "compute": sum(each.compute_time for each in stage.traces) / steps,
        "exposed communication": sum(each.exposed_comm for each in stage.traces) / steps,
    }
    for each in stage.traces:
        for cause, time in each.idle.by_cause.items():
            times[f"idle: {cause}"] = times.get(f"idle: {cause}", 0.0) + time / steps
    return {name: time for name, time in times.items() if time}


def _operators(before: StageAnalysis, after: StageAnalysis) -> tuple[Change, ...]:
    one, other = _operators_by_name(before), _operators_by_name(after)
    nothing = (0.0, 0.0)
    changes = []
    for name in {**one, **other}:
        (time, calls), (other_time, other_calls) = one.get(name, nothing), other.get(name, nothing)
        changes.append(Change(name, time, other_time, calls, other_calls))
    changed = [each for each in changes if each.difference or each.calls_before != each.calls_after]
    return tuple(sorted(changed, key=lambda each: -abs(each.difference)))


def _operators_by_name(stage: StageAnalysis) -> dict[str, tuple[float, float]]:
    steps = _steps(stage)
    return {
        row.name: ((row.device_time if stage.has_device else row.self_cpu_time) / steps, row.calls / steps)
        for row in stage.operators
    }


def _steps(stage: StageAnalysis) -> int:
    return sum(each.steps for each in stage.traces) or 1
