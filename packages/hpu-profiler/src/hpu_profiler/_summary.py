"""Summary of the recorded traces: the report's table of operators, in an order of the user's."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from rich.console import Console

from hpu_profiler._formatting import format_time
from hpu_profiler.analysis.operators import operator_shares
from hpu_profiler.report import tables
from hpu_profiler.report.text import print_table

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
_WIDTH: Final = 160


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
    ordered = sorted(operator_shares(rows), key=lambda pair: key(pair[0]), reverse=True)
    shown = ordered if row_limit < 0 else ordered[:row_limit]
    footer = [f"Self CPU time total: {format_time(sum(row.self_cpu_time for row in rows))}"]
    if has_device:
        simulated = " (simulated)" if any(trace.simulated for trace in traces) else ""
        footer.append(f"HPU time total: {format_time(sum(row.device_time for row in rows))}{simulated}")
    if len(shown) < len(ordered):
        footer.append(f"{len(ordered) - len(shown)} more operators")
    console = Console(file=io.StringIO(), width=_WIDTH, highlight=False)
    print_table(console, tables.operators("", shown, has_memory=any(trace.has_memory for trace in traces)))
    console.print(" · ".join(footer), markup=False)
    return str(console.file.getvalue())  # type: ignore[attr-defined] # of a StringIO
