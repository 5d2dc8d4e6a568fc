"""The report for programs: plain values under stable keys, times in microseconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpu_profiler.report.model import Analysis, Report


def as_json(report: Report) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "simulated": report.is_simulated,
        "slowest": report.slowest.name if report.slowest else None,
        "findings": [asdict(finding) for finding in report.findings],
        "traces": [_trace(analysis) for analysis in report.analyses],
        "operators": [asdict(operator) for operator in report.operators],
    }


def _trace(analysis: Analysis) -> dict[str, Any]:
    trace = analysis.trace
    return {
        "name": analysis.name,
        "path": str(trace.path),
        "rank": trace.rank,
        "world_size": trace.world_size,
        "host": trace.host,
        "stage": trace.stage,
        "card": trace.card,
        "simulated": trace.simulated,
        "steps": analysis.steps,
        "step_time": analysis.step_time,
        "own_time": analysis.own_time,
        "window": analysis.window,
        "busy": analysis.busy,
        "idle": analysis.idle,
        "idle_share": analysis.idle_share,
        "marks": dict(analysis.marks),
        "collective": analysis.collective,
        "overlapped": analysis.overlapped,
        "collectives": [asdict(each) for each in analysis.collectives],
        "copies": [asdict(each) for each in analysis.copies],
        "compilations": asdict(analysis.compilations),
        "dropped": trace.dropped,
    }
