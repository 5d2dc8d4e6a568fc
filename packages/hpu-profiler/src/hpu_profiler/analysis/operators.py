"""Time and memory by operator."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_profiler.trace.model import Trace


@dataclass(slots=True)
class OperatorStats:
    """Totals of all calls of an operator, or of a kernel that has no link to an operator.

    Attributes:
        name: Name of the operator or kernel.
        shapes: Input shapes, if calls are grouped by them.
        calls: Number of calls.
        cpu_time: Host time with the operators that it called, in microseconds.
        self_cpu_time: Host time without the operators that it called.
        device_time: Time of the device events that it launched itself.
        device_events: Number of those events.
        self_memory: Bytes allocated minus bytes freed, without the operators that it called.
    """

    name: str
    shapes: str = ""
    calls: int = 0
    cpu_time: float = 0.0
    self_cpu_time: float = 0.0
    device_time: float = 0.0
    device_events: int = 0
    self_memory: int = 0


def operator_stats(trace: Trace, *, group_by_shapes: bool = False) -> list[OperatorStats]:
    """Return the totals of each operator, the one with the most device time first.

    Each device event counts once, for the operator that launched it. The device time of all operators is therefore the
    sum of all device events.
    """
    rows: dict[tuple[str, str], OperatorStats] = {}

    def row(name: str, shapes: str) -> OperatorStats:
        key = (name, shapes if group_by_shapes else "")
        if key not in rows:
            rows[key] = OperatorStats(*key)
        return rows[key]

    for operator in trace.operators:
        stats = row(operator.name, operator.shapes)
        stats.calls += 1
        stats.cpu_time += operator.duration
        stats.self_cpu_time += operator.self_time
        stats.self_memory += operator.self_memory
    for event in trace.device_events:
        launcher = event.operator
        stats = row(launcher.name, launcher.shapes) if launcher else row(event.name, "")
        stats.device_time += event.duration
        stats.device_events += 1
    for stats in rows.values():
        # A kernel without an operator has no calls on the host; count its runs.
        stats.calls = stats.calls or stats.device_events
    return _sorted(rows.values())


def merge_operator_stats(parts: Iterable[Iterable[OperatorStats]]) -> list[OperatorStats]:
    """Return the totals of several results of `operator_stats`."""
    rows: dict[tuple[str, str], OperatorStats] = {}
    for part in parts:
        for each in part:
            stats = rows.setdefault((each.name, each.shapes), OperatorStats(each.name, each.shapes))
            for field in fields(OperatorStats)[2:]:
                setattr(stats, field.name, getattr(stats, field.name) + getattr(each, field.name))
    return _sorted(rows.values())


def operator_shares(rows: Sequence[OperatorStats]) -> list[tuple[OperatorStats, float]]:
    """Return operators with their fraction of the device time; without a device, of the self CPU time."""
    has_device = any(row.device_events for row in rows)
    times = [row.device_time if has_device else row.self_cpu_time for row in rows]
    total = sum(times)
    return [(row, time / total if total else 0.0) for row, time in zip(rows, times, strict=True)]


def _sorted(rows: Iterable[OperatorStats]) -> list[OperatorStats]:
    return sorted(rows, key=lambda stats: (-stats.device_time, -stats.self_cpu_time, stats.name))
