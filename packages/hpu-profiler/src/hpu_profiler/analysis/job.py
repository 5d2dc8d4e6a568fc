"""Analysis of a job: the traces of all its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.operators import operator_stats
from hpu_profiler.analysis.recommendations import recommendations
from hpu_profiler.analysis.trace_analysis import analyze_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_profiler.analysis.operators import OperatorStats
    from hpu_profiler.analysis.recommendations import Recommendation
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis
    from hpu_profiler.trace.model import Trace

__all__ = ["JobAnalysis", "analyze_job"]

#: A rank is a straggler if its step takes this fraction longer than the median.
_STRAGGLER_TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class JobAnalysis:
    """Results for all traces of a job.

    Attributes:
        traces: Results for each trace, ordered by rank.
        operators: Totals of each operator over all traces, most device time first.
        straggler: Rank that the others wait for; None with one rank, or if all ranks are about equally fast.
        recommendations: What to change, largest fraction of the time first.
    """

    traces: tuple[TraceAnalysis, ...]
    operators: tuple[OperatorStats, ...]
    straggler: TraceAnalysis | None
    recommendations: tuple[Recommendation, ...]

    @property
    def has_device(self) -> bool:
        """Whether any trace has device events."""
        return any(each.has_device for each in self.traces)

    @property
    def is_simulated(self) -> bool:
        """Whether any device was simulated."""
        return any(each.trace.simulated for each in self.traces)

    @property
    def device_names(self) -> list[str]:
        """Names of the devices, sorted."""
        return sorted({each.trace.device_name for each in self.traces if each.trace.device_name})

    @property
    def operator_shares(self) -> list[tuple[OperatorStats, float]]:
        """Operators with their fraction of the device time; without a device, of the self CPU time."""
        times = [each.device_time if self.has_device else each.self_cpu_time for each in self.operators]
        total = sum(times)
        return [(each, time / total if total else 0.0) for each, time in zip(self.operators, times, strict=True)]


def analyze_job(traces: Iterable[Trace]) -> JobAnalysis:
    """Return the results for the traces of a job."""
    traces = sorted(traces, key=lambda trace: (trace.rank is None, trace.rank or 0, trace.stage, trace.path.name))
    analyses = tuple(analyze_trace(trace, name) for trace, name in zip(traces, _unique_names(traces), strict=True))
    straggler = _straggler(analyses)
    return JobAnalysis(analyses, tuple(operator_stats(traces)), straggler, recommendations(analyses, straggler))


def _unique_names(traces: Sequence[Trace]) -> list[str]:
    """Return a name for each trace: its rank, with stage and number where ranks repeat."""
    ranks = [f"rank {trace.rank}" if trace.rank is not None else trace.path.name.split(".")[0] for trace in traces]
    names = [
        f"{rank}, {trace.stage}" if trace.stage and ranks.count(rank) > 1 else rank
        for rank, trace in zip(ranks, traces, strict=True)
    ]
    return [
        f"{name}, trace {names[: index + 1].count(name)}" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def _straggler(traces: Sequence[TraceAnalysis]) -> TraceAnalysis | None:
    """Return the rank whose step takes longest without exposed communication.

    Collectives synchronize the ranks, so their steps take the same time. The fast ranks spend the difference waiting in
    collectives.
    """
    training = [each for each in traces if each.steps and each.trace.stage in {"", "training"}]
    if len({each.trace.rank for each in training}) <= 1:
        return None
    by_time = sorted(training, key=lambda each: each.step_time_excl_comm_wait)
    # The lower median, so that two ranks are compared with each other.
    median = by_time[(len(by_time) - 1) // 2].step_time_excl_comm_wait
    slowest = by_time[-1]
    return slowest if slowest.step_time_excl_comm_wait > median * (1 + _STRAGGLER_TOLERANCE) else None
