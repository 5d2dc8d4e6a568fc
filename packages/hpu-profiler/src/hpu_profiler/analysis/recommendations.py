"""Recommendations: what a reader should change first, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_profiler._formatting import format_percent, format_time
from hpu_profiler.analysis.idle_time import IDLE_CAUSES, OTHER_HOST_WORK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.analysis.idle_time import IdleCause
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis

__all__ = ["Recommendation", "recommendations"]

#: Smallest fraction of the time that is worth a recommendation.
_MIN_FRACTION: Final = 0.05

_DETAILS: Final[dict[IdleCause, str]] = {
    "compilation": "Graphs are compiled while steps run. Keep shapes the same from batch to batch (pad them, "
    "`drop_last=True`). If these are the first graphs of a run, start recording later.",
    "data loading": "The card waits for batches. Give the DataLoader more workers, or do less work in the dataset.",
    "host sync": "The host waits for a value from the card and launches no work meanwhile. Look for `.item()`, "
    "`print(loss)` and `if tensor:` in the training step, and log less often.",
    "other host work": "The host takes longer to launch work than the card takes to do it. Use larger batches, "
    "`torch.compile` in eager mode, or fewer and larger operators.",
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Something to change.

    Attributes:
        title: The problem, in one sentence.
        details: Its cause and what to do. Text between backticks is code.
        fraction: Fraction of the time that is affected, by which recommendations are sorted.
    """

    title: str
    details: str
    fraction: float


def recommendations(traces: Sequence[TraceAnalysis], straggler: TraceAnalysis | None) -> tuple[Recommendation, ...]:
    """Return the recommendations, largest fraction of the time first.

    Args:
        traces: Results for all traces.
        straggler: Rank that the others wait for, if there is one.
    """
    on_device = [trace for trace in traces if trace.has_device and trace.duration]
    candidates = [_idle(on_device, cause) for cause in IDLE_CAUSES]
    # The other ranks spend their exposed communication waiting for the straggler.
    candidates.append(_exposed_comm([straggler] if straggler else on_device))
    if straggler is not None:
        peers = [each for each in traces if each.steps and each.trace.stage == straggler.trace.stage]
        candidates.append(_straggler(straggler, min(peers, key=lambda each: each.step_time_excl_comm_wait)))
    candidates += [_recompilation(trace) for trace in traces]
    return tuple(sorted(filter(None, candidates), key=lambda each: -each.fraction))


def _straggler(straggler: TraceAnalysis, fastest: TraceAnalysis) -> Recommendation:
    gap = straggler.step_time_excl_comm_wait - fastest.step_time_excl_comm_wait
    differences: dict[str, float] = {
        cause: _idle_per_step(straggler, cause) - _idle_per_step(fastest, cause) for cause in IDLE_CAUSES
    }
    differences["device time"] = _device_time_per_step(straggler) - _device_time_per_step(fastest)
    largest = max(differences, key=lambda name: differences[name])
    action = _main_action(straggler) if largest == OTHER_HOST_WORK else ""
    where = f", most of it in `{action}`" if action else ""
    return Recommendation(
        f"{straggler.name.capitalize()} is the straggler: its step takes {format_time(gap)} longer",
        f"The other ranks wait for it in collectives. The largest difference from {fastest.name} is {largest}: "
        f"{format_time(differences[largest])} more per step{where}.",
        gap / straggler.step_time,
    )


def _idle_per_step(trace: TraceAnalysis, cause: IdleCause) -> float:
    return trace.idle.by_cause.get(cause, 0.0) / trace.steps


def _device_time_per_step(trace: TraceAnalysis) -> float:
    return (trace.busy_time - trace.exposed_comm) / trace.steps


def _main_action(trace: TraceAnalysis) -> str:
    """Return the action with more than half of the idle time that has no other cause; empty if there is none."""
    if not trace.idle.by_action:
        return ""
    name, time = trace.idle.by_action[0]
    return name if time > trace.idle.by_cause[OTHER_HOST_WORK] / 2 else ""


def _idle(traces: Sequence[TraceAnalysis], cause: IdleCause) -> Recommendation | None:
    """Return the recommendation for one cause of idle time, for the trace with the largest fraction."""
    fractions = [trace.idle.by_cause.get(cause, 0.0) / trace.duration for trace in traces]
    if max(fractions, default=0.0) < _MIN_FRACTION:
        return None
    fraction, trace = max(zip(fractions, traces, strict=True), key=lambda pair: pair[0])
    where = f" ({trace.name})" if len(traces) > 1 else ""
    action = _main_action(trace) if cause == OTHER_HOST_WORK else ""
    details = f"Most of it is in `{action}`, during which the card has no work." if action else _DETAILS[cause]
    return Recommendation(f"The card is idle {format_percent(fraction)} of the time: {cause}{where}", details, fraction)


def _exposed_comm(traces: Sequence[TraceAnalysis]) -> Recommendation | None:
    """Return the recommendation for exposed communication, for the trace with the largest fraction."""
    fractions = [trace.exposed_comm / trace.duration for trace in traces]
    if max(fractions, default=0.0) < _MIN_FRACTION:
        return None
    fraction, trace = max(zip(fractions, traces, strict=True), key=lambda pair: pair[0])
    return Recommendation(
        f"Exposed communication takes {format_percent(fraction)} of the time ({trace.name})",
        "Collectives run while the card computes nothing. Larger gradient buckets, gradient accumulation or a larger "
        "batch per card let more of them overlap with computation. If one rank is slow, the others wait for it here.",
        fraction,
    )


def _recompilation(trace: TraceAnalysis) -> Recommendation | None:
    count = trace.compilations.recompilations
    if not count:
        return None
    return Recommendation(
        f"{count} graph{'s were' if count > 1 else ' was'} recompiled for new shapes ({trace.name})",
        _DETAILS["compilation"],
        trace.compilations.time / trace.duration if trace.duration else 0.0,
    )
