"""The summary of recorded traces as a table of text, one row for each operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_profiler.units import in_bytes, in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpu_profiler.trace.model import Trace
    from hpu_profiler.trace.operators import OperatorTotal

#: What rows can be sorted by, the largest first; keys as PyTorchProfiler has them, with "hpu" for "cuda".
SORT_KEYS: Final[dict[str, Callable[[OperatorTotal], float]]] = {
    "count": lambda row: row.calls,
    "cpu_time": lambda row: row.cpu / row.calls if row.calls else 0.0,
    "cpu_time_total": lambda row: row.cpu,
    "self_cpu_time_total": lambda row: row.own_cpu,
    "cpu_memory_usage": lambda row: row.memory,
    "self_cpu_memory_usage": lambda row: row.memory,
    "hpu_time": lambda row: row.hpu / row.calls if row.calls else 0.0,
    "hpu_time_total": lambda row: row.hpu,
}
_NAME_WIDTH: Final = 55


def table(traces: Sequence[Trace], rows: Sequence[OperatorTotal], *, sort_by: str | None, limit: int) -> str:
    """Return the table.

    Args:
        traces: What the rows were added up from.
        rows: All operators.
        sort_by: A key of `SORT_KEYS`; None for time on the card where there is one, else on the host.
        limit: Rows that are shown; -1 for all.
    """
    has_card = any(trace.work for trace in traces)
    key = SORT_KEYS[sort_by or ("hpu_time_total" if has_card else "cpu_time_total")]
    ordered = sorted(rows, key=key, reverse=True)
    shown = ordered if limit < 0 else ordered[:limit]
    whole_cpu = sum(row.own_cpu for row in rows)
    whole_hpu = sum(row.hpu for row in rows)
    columns = _columns(whole_cpu, whole_hpu, has_card, any(trace.has_memory for trace in traces))
    lines = [tuple(columns), *(tuple(cell(row) for cell in columns.values()) for row in shown)]
    foot = [f"CPU time in operators: {in_time(whole_cpu)}"]
    if has_card:
        foot.append(f"HPU time: {in_time(whole_hpu)}{' (simulated)' if any(t.simulated for t in traces) else ''}")
    if len(shown) < len(ordered):
        foot.append(f"{len(ordered) - len(shown)} more operators")
    return "\n".join([*_align(lines), " · ".join(foot)])


def _columns(
    whole_cpu: float, whole_hpu: float, has_card: bool, has_memory: bool
) -> dict[str, Callable[[OperatorTotal], str]]:
    columns: dict[str, Callable[[OperatorTotal], str]] = {
        "Operator": lambda row: _shortened(f"{row.name} {row.shapes}".rstrip()),
        "Calls": lambda row: str(row.calls),
        "CPU time": lambda row: in_time(row.cpu),
        "Self CPU": lambda row: in_time(row.own_cpu),
        "Self CPU %": lambda row: _share(row.own_cpu, whole_cpu),
    }
    if has_card:
        columns["HPU time"] = lambda row: in_time(row.hpu) if row.works else "-"
        columns["HPU %"] = lambda row: _share(row.hpu, whole_hpu) if row.works else "-"
    if has_memory:
        columns["Memory"] = lambda row: in_bytes(row.memory)
    return columns


def _shortened(text: str) -> str:
    return text if len(text) <= _NAME_WIDTH else text[: _NAME_WIDTH - 1] + "…"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, its first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    return [aligned[0], "-" * len(aligned[0]), *aligned[1:], "-" * len(aligned[0])]
