"""Analysis of a job: the traces of all its ranks, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.findings import find, one_per_rank
from hpu_profiler.analysis.operators import merge_operator_stats, operator_stats
from hpu_profiler.analysis.trace_analysis import analyze_trace
from hpu_profiler.trace.reader import paused_gc
from hpu_profiler.trace.stages import STAGES, split_stages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_profiler.analysis.findings import Finding
    from hpu_profiler.analysis.operators import OperatorStats
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis
    from hpu_profiler.trace.model import Stage, Trace, TraceInfo

    # Results for one stage of one trace, and the totals of its operators.
    _StageOfTrace = tuple[TraceAnalysis, list[OperatorStats]]

#: A rank is a straggler if its step takes this fraction longer than the median.
_STRAGGLER_TOLERANCE: Final = 0.05
#: Traces up to which a report shows all of them.
_MAX_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class StageAnalysis:
    """Results for one stage of a job.

    Attributes:
        stage: The stage; empty if the traces do not show it.
        traces: Results for each trace, ordered by rank.
        operators: Totals of each operator over all ranks, most device time first.
        slow_ranks: Ranks that the others wait for, about equally slow; none if all ranks are about equally fast.
        findings: What to change, largest saving first.
    """

    stage: Stage
    traces: tuple[TraceAnalysis, ...]
    operators: tuple[OperatorStats, ...]
    slow_ranks: tuple[TraceAnalysis, ...]
    findings: tuple[Finding, ...]

    @property
    def title(self) -> str:
        """Name of the stage in a report."""
        return self.stage or "recorded time"

    @property
    def straggler(self) -> TraceAnalysis | None:
        """Slowest of the slow ranks."""
        return self.slow_ranks[0] if self.slow_ranks else None

    def shown(self, count: int) -> tuple[TraceAnalysis, ...]:
        """Return the traces to show: all of a small job; the slowest, the median and the fastest of a large one.

        Args:
            count: Number of the slowest ones.
        """
        if len(self.traces) <= _MAX_SHOWN:
            return self.traces
        ordered = sorted(self.traces, key=lambda each: -each.step_time_excl_comm_wait)
        return (*ordered[:count], ordered[len(ordered) // 2], ordered[-1])

    @property
    def has_device(self) -> bool:
        """Whether any trace has device events."""
        return any(each.has_device for each in self.traces)

    @property
    def step_time(self) -> float:
        """Mean duration of a step on the slowest rank, in microseconds."""
        return max((each.step_time for each in self.traces), default=0.0)


@dataclass(frozen=True, slots=True)
class JobAnalysis:
    """Results for all traces of a job.

    Attributes:
        stages: Results for each stage, in Lightning's order.
        traces: What the traces say of their processes, ordered by rank.
    """

    stages: tuple[StageAnalysis, ...]
    traces: tuple[TraceInfo, ...]

    @property
    def is_simulated(self) -> bool:
        """Whether any device was simulated."""
        return any(trace.simulated for trace in self.traces)

    @property
    def is_predicted(self) -> bool:
        """Whether any times are predicted and not measured."""
        return any(trace.predicted for trace in self.traces)

    @property
    def notes(self) -> list[str]:
        """What was wrong with the traces, each once with the name of a trace and the number of others."""
        names: dict[str, list[str]] = {}
        for trace in self.traces:
            for note in trace.notes:
                names.setdefault(note, []).append(trace.path.name)
        notes = [f"{of[0]}{f' and {len(of) - 1} more' if len(of) > 1 else ''}: {note}" for note, of in names.items()]
        runs: dict[int | None, set[str]] = {}
        for trace in self.traces:
            runs.setdefault(trace.rank, set()).update({trace.run} - {""})
        if (most := max(map(len, runs.values()), default=0)) > 1:
            notes.append(f"traces of {most} runs are taken as one: report on each, by the times in the files' names")
        return notes

    @property
    def device_names(self) -> list[str]:
        """Names of the devices, sorted."""
        return sorted({trace.device_name for trace in self.traces if trace.device_name})

    @property
    def device_title(self) -> str:
        """Names of the devices, and "simulated" or "predicted, not measured" if no card was measured."""
        origins = {"simulated": self.is_simulated, "predicted, not measured": self.is_predicted}
        names = ", ".join(self.device_names) or "no card"
        return names + "".join(f" ({origin})" for origin, applies in origins.items() if applies)


def analyze_job(traces: Iterable[Trace]) -> JobAnalysis:
    """Return the results for the traces of a job.

    Args:
        traces: Traces, of which one at a time is needed: an iterator may read each when it is asked for it.
    """
    infos: list[TraceInfo] = []
    by_stage: dict[Stage, list[_StageOfTrace]] = {}
    for trace in traces:
        infos.append(trace.info)
        for part in split_stages(trace):
            with paused_gc():
                by_stage.setdefault(part.stage, []).append((analyze_trace(part, ""), operator_stats(part)))
        # The next trace is read while these names still hold this one.
        del trace, part
    infos.sort(key=_order)
    order = [*dict.fromkeys(STAGES.values()), ""]
    stages = [_analyze_stage(stage, by_stage[stage]) for stage in sorted(by_stage, key=order.index)]
    return JobAnalysis(tuple(stages), tuple(infos))


def _order(trace: TraceInfo) -> tuple[bool, int, str, str]:
    return trace.rank is None, trace.rank or 0, trace.stage, trace.path.name


def _analyze_stage(stage: Stage, results: list[_StageOfTrace]) -> StageAnalysis:
    ordered = sorted((analysis for analysis, _ in results), key=lambda each: _order(each.trace))
    names = unique_names([each.trace for each in ordered])
    analyses = tuple(replace(each, name=name) for each, name in zip(ordered, names, strict=True))
    slow_ranks = _slow_ranks(analyses)
    return StageAnalysis(
        stage=stage,
        traces=analyses,
        operators=tuple(merge_operator_stats(rows for _, rows in results)),
        slow_ranks=slow_ranks,
        findings=find(analyses, slow_ranks),
    )


def unique_names(traces: Sequence[TraceInfo]) -> list[str]:
    """Return a name for each trace: its rank, with a number where ranks repeat."""
    names = [f"rank {trace.rank}" if trace.rank is not None else trace.path.name.split(".")[0] for trace in traces]
    return [
        f"{name}, trace {names[: index + 1].count(name)}" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def _slow_ranks(traces: Sequence[TraceAnalysis]) -> tuple[TraceAnalysis, ...]:
    """Return the ranks whose steps take longest without exposed communication, such as all ranks of a slow machine.

    Collectives synchronize the ranks, so their steps take the same time. The fast ranks spend the difference waiting in
    collectives.
    """
    by_time = sorted(one_per_rank(traces), key=lambda each: -each.step_time_excl_comm_wait)
    if not by_time:
        return ()
    # The lower median, so that two ranks are compared with each other.
    median = by_time[len(by_time) // 2].step_time_excl_comm_wait
    limit = max(median * (1 + _STRAGGLER_TOLERANCE), by_time[0].step_time_excl_comm_wait / (1 + _STRAGGLER_TOLERANCE))
    return tuple(each for each in by_time if each.step_time_excl_comm_wait > limit)
