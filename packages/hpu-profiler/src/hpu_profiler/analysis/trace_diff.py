"""Difference between two jobs: steps, host work, engines, graphs and operators, per step, for runs of any length.

A predicted step names torch's operators. To compare it with a card, whose kernels are the compiler's, both get plain
names: without dtypes and numbers, and with torch's word where the compiler has another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hpu_profiler.analysis.job import JobAnalysis, StageAnalysis
    from hpu_profiler.trace.model import Stage

    # Name, time and calls.
    _Rows = Iterable[tuple[str, float, int]]
    _NameOf = Callable[[str], str]

_NOISE: Final = re.compile(r"(_(fwd|bwd|f32|f16|bf16|i32|i8|u8|hf8|f8)|\d+|_)+$")
# Names of the compiler's nodes, and the operators of torch.
_NODES: Final = {"gemm": "mm", "batch_gemm": "bmm", "spatial_convolution": "convolution", "mult": "mul"}


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
        stage: The stage; empty if neither job shows it.
        times: Step time and its parts, in a fixed order.
        engines: Engines with a different time, largest difference first.
        graphs: Graphs with a different time, by their number in the order in which they first run.
        operators: Operators with a different time or number of calls, largest difference first.
    """

    stage: Stage
    times: tuple[Change, ...]
    engines: tuple[Change, ...]
    graphs: tuple[Change, ...]
    operators: tuple[Change, ...]


def diff_jobs(before: JobAnalysis, after: JobAnalysis) -> tuple[StageDiff, ...]:
    """Return the differences in each stage that both jobs have.

    Where a job shows no stage, as a trace of torch's profiler, its only one is compared with the other's first one.
    """
    others = {stage.stage: stage for stage in after.stages}
    pairs = [(stage, others[stage.stage]) for stage in before.stages if stage.stage in others]
    firsts = list(zip(before.stages[:1], after.stages[:1], strict=False))
    if not pairs and any(not (one.stage and other.stage) for one, other in firsts):
        pairs = firsts
    name_of = str if before.is_predicted is after.is_predicted else _plain_name
    return tuple(
        StageDiff(
            one.stage or other.stage,
            _times(one, other),
            _changes(one, other, _engines),
            _changes(one, other, _graphs),
            _changes(one, other, _operators, name_of),
        )
        for one, other in pairs
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


def _changes(
    before: StageAnalysis, after: StageAnalysis, rows_of: Callable[[StageAnalysis], _Rows], name_of: _NameOf = str
) -> tuple[Change, ...]:
    """Return the differences of rows by their names, the largest first."""
    one, other = _totals(before, rows_of(before), name_of), _totals(after, rows_of(after), name_of)
    nothing = (0.0, 0.0)
    changes = []
    for name in {**one, **other}:
        (time, calls), (other_time, other_calls) = one.get(name, nothing), other.get(name, nothing)
        changes.append(Change(name, time, other_time, calls, other_calls))
    changed = [each for each in changes if each.difference or each.calls_before != each.calls_after]
    return tuple(sorted(changed, key=lambda each: -abs(each.difference)))


def _totals(stage: StageAnalysis, rows: _Rows, name_of: _NameOf) -> dict[str, tuple[float, float]]:
    """Return the times and calls per step of rows with the same name."""
    steps = _steps(stage)
    totals: dict[str, tuple[float, float]] = {}
    for name, time, calls in rows:
        total = totals.get(name_of(name), (0.0, 0.0))
        totals[name_of(name)] = total[0] + time / steps, total[1] + calls / steps
    return totals


def _engines(stage: StageAnalysis) -> _Rows:
    return ((row.engine, row.time, row.events) for each in stage.traces for row in each.engines)


def _graphs(stage: StageAnalysis) -> _Rows:
    for each in stage.traces:
        for number, graph in enumerate(sorted(each.recipes, key=lambda graph: graph.start), 1):
            yield f"graph {number}", graph.busy_time, graph.launches


def _operators(stage: StageAnalysis) -> _Rows:
    for row in stage.operators:
        yield row.name, row.device_time if stage.has_device else row.self_cpu_time, row.calls


def _plain_name(name: str) -> str:
    """Return the operator that a kernel or an operator of torch is.

    >>> _plain_name("aten::_softmax"), _plain_name("softmax_fwd_bf16_12"), _plain_name("gemm")
    ('softmax', 'softmax', 'mm')
    """
    last = name.partition(" and ")[0].rpartition(":")[2].lower()
    plain = _NOISE.sub("", last) or last
    return _NODES.get(plain, plain.strip("_"))


def _steps(stage: StageAnalysis) -> int:
    return sum(each.steps for each in stage.traces) or 1
