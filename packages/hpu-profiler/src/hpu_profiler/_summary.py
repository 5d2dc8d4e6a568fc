"""Summary table: one row for each operator of the recorded traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_profiler._formatting import format_bytes, format_percent, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpu_profiler.analysis.operators import OperatorStats
    from hpu_profiler.trace.model import TraceInfo

#: Sort keys of PyTorchProfiler, with "hpu" in place of "cuda". Rows are sorted in descending order.
SORT_KEYS: Final[dict[str, Callable[[OperatorStats], float]]] = {
    "count": lambda row: row.calls,
    "cpu_time": lambda row: row.cpu_time / row.calls if row.calls else 0.0,
    "cpu_time_total": lambda row: row.cpu_time,
    "self_cpu_time_total": lambda row: row.self_cpu_time,
    "cpu_memory_usage": lambda row: row.self_memory,
    "self_cpu_memory_usage": lambda row: row.self_memory,
    "hpu_time": lambda row: row.device_time / row.calls if row.calls else 0.0,
    "hpu_time_total": lambda row: row.device_time,
}
_NAME_WIDTH: Final = 55


def format_table(
    traces: Sequence[TraceInfo], rows: Sequence[OperatorStats], *, sort_by: str | None, row_limit: int
) -> str:
    """Return the summary table.

    Args:
        traces: What the traces of the rows say of their processes.
        rows: Totals of all operators.
        sort_by: Key of `SORT_KEYS`; None for device time, or CPU time if there is no device.
        row_limit: Number of rows to show; -1 for all.
    """
    has_device = any(row.device_events for row in rows)
    key = SORT_KEYS[sort_by or ("hpu_time_total" if has_device else "cpu_time_total")]
    ordered = sorted(rows, key=key, reverse=True)
    shown = ordered if row_limit < 0 else ordered[:row_limit]
    columns = _columns(rows, has_device=has_device, has_memory=any(trace.has_memory for trace in traces))
    lines = [tuple(columns), *(tuple(cell(row) for cell in columns.values()) for row in shown)]
    footer = [f"Self CPU time total: {format_time(sum(row.self_cpu_time for row in rows))}"]
    if has_device:
        simulated = " (simulated)" if any(trace.simulated for trace in traces) else ""
        footer.append(f"HPU time total: {format_time(sum(row.device_time for row in rows))}{simulated}")
    if len(shown) < len(ordered):
        footer.append(f"{len(ordered) - len(shown)} more operators")
    return "\n".join([*_align(lines), " · ".join(footer)])


def _columns(
    rows: Sequence[OperatorStats], *, has_device: bool, has_memory: bool
) -> dict[str, Callable[[OperatorStats], str]]:
    """Return the text of a cell by column."""
    cpu_total = sum(row.self_cpu_time for row in rows)
    device_total = sum(row.device_time for row in rows)
    columns: dict[str, Callable[[OperatorStats], str]] = {
        "Name": lambda row: _truncate(f"{row.name} {row.shapes}".rstrip()),
        "Calls": lambda row: str(row.calls),
        "CPU time": lambda row: format_time(row.cpu_time),
        "Self CPU": lambda row: format_time(row.self_cpu_time),
        "Self CPU %": lambda row: _share(row.self_cpu_time, cpu_total),
    }
    if has_device:
        columns["HPU time"] = lambda row: format_time(row.device_time) if row.device_events else "-"
        columns["HPU %"] = lambda row: _share(row.device_time, device_total) if row.device_events else "-"
    if has_memory:
        columns["Self memory"] = lambda row: format_bytes(row.self_memory)
    return columns


def _truncate(text: str) -> str:
    return text if len(text) <= _NAME_WIDTH else text[: _NAME_WIDTH - 1] + "…"


def _share(part: float, total: float) -> str:
    return format_percent(part / total) if total else "-"


def _align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with rules; the first column is left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    rule = "-" * len(aligned[0])
    return [aligned[0], rule, *aligned[1:], rule]
