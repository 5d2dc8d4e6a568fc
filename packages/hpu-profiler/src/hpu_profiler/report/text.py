"""Text report: tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hpu_profiler._formatting import format_bytes, format_percent, format_time
from hpu_profiler.analysis.idle_time import IDLE_CAUSES

if TYPE_CHECKING:
    from rich.console import Console

    from hpu_profiler.analysis.job import JobAnalysis

__all__ = ["print_report"]


def print_report(console: Console, job: JobAnalysis, *, row_limit: int) -> None:
    """Print the report.

    Args:
        console: Console to print to.
        job: Results to print.
        row_limit: Number of operators to print.
    """
    devices = ", ".join(job.device_names) or "no card"
    traces = f"{len(job.traces)} trace{'s' if len(job.traces) != 1 else ''}"
    console.print(Text(f"hpu-profiler: {traces}, {devices}{' (simulated)' if job.is_simulated else ''}"))
    for recommendation in job.recommendations:
        console.print(Padding(Text(recommendation.title, style="bold"), (0, 0, 0, 2), expand=False))
        console.print(Padding(Text(recommendation.details), (0, 0, 0, 4), expand=False))
    console.print(_traces(job))
    if job.has_device:
        console.print(_idle_time(job))
    events = _device_events(job)
    if events.row_count:
        console.print(events)
    console.print(_operators(job, row_limit))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    return table


def _add_row(table: Table, *cells: str) -> None:
    # Text, because names from a trace may look like rich's markup.
    table.add_row(*(Text(cell) for cell in cells))


def _traces(job: JobAnalysis) -> Table:
    columns = ("steps", "step time", "excl. comm wait", "card idle", "comm time", "comm overlap", "compiled graphs")
    table = _table("\nTraces", "", *columns)
    for each in job.traces:
        _add_row(
            table,
            each.name + (", straggler" if each is job.straggler else ""),
            str(each.steps),
            format_time(each.step_time) if each.steps else "-",
            format_time(each.step_time_excl_comm_wait) if each.steps and each.comm_time else "-",
            format_percent(each.idle_fraction) if each.has_device else "-",
            format_time(each.comm_time) if each.comm_time else "-",
            format_percent(each.comm_overlap / each.comm_time) if each.comm_time else "-",
            str(each.compilations.count),
        )
    return table


def _idle_time(job: JobAnalysis) -> Table:
    table = _table("\nIdle time of the card, by cause", "", *IDLE_CAUSES)
    for each in job.traces:
        if each.has_device and each.duration:
            fractions = (each.idle.by_cause.get(cause, 0.0) / each.duration for cause in IDLE_CAUSES)
            _add_row(table, each.name, *map(format_percent, fractions))
    return table


def _device_events(job: JobAnalysis) -> Table:
    table = _table("\nCopies and collectives", "", "", "calls", "time", "bytes")
    for each in job.traces:
        for stats in (*each.memcpy, *each.collectives):
            size = format_bytes(stats.bytes) if stats.bytes else "-"
            _add_row(table, each.name, stats.name, str(stats.calls), format_time(stats.time), size)
    return table


def _operators(job: JobAnalysis, row_limit: int) -> Table:
    time_column = "card" if job.has_device else "host"
    table = _table(
        f"\nOperators by time on the {time_column}", "", "calls", "HPU time", "share", "CPU time", "self CPU time"
    )
    for row, fraction in job.operator_shares[:row_limit]:
        _add_row(
            table,
            row.name,
            str(row.calls),
            format_time(row.device_time) if row.device_events else "-",
            format_percent(fraction),
            format_time(row.cpu_time),
            format_time(row.self_cpu_time),
        )
    return table
