"""JSON report: plain values under stable keys, times in microseconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpu_profiler.analysis.job import JobAnalysis
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis

__all__ = ["to_dict"]


def to_dict(job: JobAnalysis) -> dict[str, Any]:
    """Return the report that `--json` prints."""
    return {
        "simulated": job.is_simulated,
        "straggler": job.straggler.name if job.straggler else None,
        "recommendations": [asdict(each) for each in job.recommendations],
        "traces": [_trace(each) for each in job.traces],
        "operators": [asdict(each) for each in job.operators],
    }


def _trace(analysis: TraceAnalysis) -> dict[str, Any]:
    trace = analysis.trace
    return {
        "name": analysis.name,
        "path": str(trace.path),
        "rank": trace.rank,
        "world_size": trace.world_size,
        "host": trace.host,
        "stage": trace.stage,
        "device_name": trace.device_name,
        "simulated": trace.simulated,
        "steps": analysis.steps,
        "step_time": analysis.step_time,
        "step_time_excl_comm_wait": analysis.step_time_excl_comm_wait,
        "duration": analysis.duration,
        "busy_time": analysis.busy_time,
        "idle_time": analysis.idle.by_cause,
        "idle_time_by_action": dict(analysis.idle.by_action),
        "idle_fraction": analysis.idle_fraction,
        "comm_time": analysis.comm_time,
        "comm_overlap": analysis.comm_overlap,
        "exposed_comm": analysis.exposed_comm,
        "collectives": [asdict(each) for each in analysis.collectives],
        "memcpy": [asdict(each) for each in analysis.memcpy],
        "compilations": asdict(analysis.compilations),
        "dropped_events": trace.dropped_events,
    }
