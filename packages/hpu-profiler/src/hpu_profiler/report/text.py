"""The report as plain tables in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hpu_profiler.report.model import CAUSES
from hpu_profiler.units import in_bytes, in_percent, in_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from hpu_profiler.report.model import Report


def show(console: Console, report: Report, *, limit: int) -> None:
    """Print the report.

    Args:
        console: Where to.
        report: The report.
        limit: Operators that are shown.
    """
    cards = sorted({analysis.trace.card for analysis in report.analyses if analysis.trace.card})
    marked = " (simulated)" if report.is_simulated else ""
    console.print(Text(f"hpu-profiler: {len(report.analyses)} trace(s), {', '.join(cards) or 'no card'}{marked}"))
    for finding in report.findings:
        console.print(Padding(Text(finding.title, style="bold"), (0, 0, 0, 2), expand=False))
        console.print(Padding(Text(finding.advice), (0, 0, 0, 4), expand=False))
    console.print(_traces(report))
    if report.has_card:
        console.print(_idle(report))
    movements = _movements(report)
    if movements.row_count:
        console.print(movements)
    console.print(_operators(report, limit))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    return table


def _add(table: Table, *cells: str) -> None:
    # As Text: what a trace calls something must not be taken for rich's markup.
    table.add_row(*(Text(cell) for cell in cells))


def _traces(report: Report) -> Table:
    table = _table(
        "\nTraces", "", "steps", "a step", "without waiting", "card idle", "collectives", "overlapped", "compiled"
    )
    for each in report.analyses:
        slowest = ", the slowest" if each is report.slowest else ""
        has_collectives = bool(each.collectives)
        _add(
            table,
            each.name + slowest,
            str(each.steps),
            in_time(each.step_time) if each.steps else "-",
            in_time(each.own_time) if each.steps and has_collectives else "-",
            in_percent(each.idle_share) if each.has_card else "-",
            in_time(each.collective) if has_collectives else "-",
            in_percent(each.overlapped / each.collective) if each.collective else "-",
            str(each.compilations.number),
        )
    return table


def _idle(report: Report) -> Table:
    table = _table("\nWhy the card was idle, of all time", "", *CAUSES)
    for each in report.analyses:
        if each.has_card and each.window:
            _add(table, each.name, *(in_percent(each.idle.get(cause, 0.0) / each.window) for cause in CAUSES))
    return table


def _movements(report: Report) -> Table:
    table = _table("\nCopies and collectives", "", "", "calls", "time", "bytes")
    for analysis in report.analyses:
        rows: Sequence[tuple[str, int, float, int]] = [
            *((f"copies {each.direction}", each.calls, each.time, each.bytes) for each in analysis.copies),
            *((each.name, each.calls, each.time, each.bytes) for each in analysis.collectives),
        ]
        for name, calls, time, size in rows:
            _add(table, analysis.name, name, str(calls), in_time(time), in_bytes(size) if size else "-")
    return table


def _operators(report: Report, limit: int) -> Table:
    where = "card" if report.has_card else "host"
    whole = sum(row.hpu if report.has_card else row.own_cpu for row in report.operators)
    table = _table(f"\nOperators by time on the {where}", "", "calls", "HPU time", "share", "CPU time", "self CPU")
    for row in report.operators[:limit]:
        time = row.hpu if report.has_card else row.own_cpu
        _add(
            table,
            row.name,
            str(row.calls),
            in_time(row.hpu) if row.works else "-",
            in_percent(time / whole) if whole else "-",
            in_time(row.cpu),
            in_time(row.own_cpu),
        )
    return table
