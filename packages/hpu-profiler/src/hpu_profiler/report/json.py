"""JSON report: plain values under stable keys, times in microseconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hpu_profiler.analysis.job import JobAnalysis, StageAnalysis
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis

#: Raised when a key is removed or changes its meaning; new keys may come at any time.
SCHEMA_VERSION: Final = 1


def to_dict(job: JobAnalysis) -> dict[str, Any]:
    """Return the report that `--json` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "simulated": job.is_simulated,
        "predicted": job.is_predicted,
        "stages": [_stage(each) for each in job.stages],
    }


def _stage(stage: StageAnalysis) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "step_time": stage.step_time,
        "straggler": stage.straggler.name if stage.straggler else None,
        "findings": [asdict(each) for each in stage.findings],
        "ranks": [_trace(each) for each in stage.traces],
        "operators": [asdict(each) for each in stage.operators],
    }


def _trace(analysis: TraceAnalysis) -> dict[str, Any]:
    trace = analysis.trace
    return {
        "name": analysis.name,
        "path": str(trace.path),
        "rank": trace.rank,
        "world_size": trace.world_size,
        "host": trace.host,
        "device_name": trace.device_name,
        "simulated": trace.simulated,
        "predicted": trace.predicted,
        "steps": analysis.steps,
        "step_time": analysis.step_time,
        "step_time_excl_comm_wait": analysis.step_time_excl_comm_wait,
        "duration": analysis.duration,
        "busy_time": analysis.busy_time,
        "idle_time": analysis.idle.by_cause,
        "idle_fraction": analysis.idle_fraction,
        "host_work": [{**asdict(each.owner), "time": each.time, "idle": each.idle} for each in analysis.idle.host_work],
        "comm_time": analysis.comm_time,
        "exposed_comm": analysis.exposed_comm,
        "engines": [asdict(each) for each in analysis.engines],
        "collectives": [asdict(each) for each in analysis.collectives],
        "compilations": {**asdict(analysis.compilations), "count": analysis.compilations.count},
        "steps_with_new_shapes": analysis.new_shapes,
        "host_syncs": asdict(analysis.host_syncs),
        "recipes": [asdict(each) for each in analysis.recipes],
        "moving_kernels": [asdict(each) for each in analysis.moving_kernels],
        "notes": trace.notes,
    }
