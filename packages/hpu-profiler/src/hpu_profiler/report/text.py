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

    from hpu_profiler.analysis.findings import Finding
    from hpu_profiler.analysis.job import JobAnalysis, StageAnalysis

__all__ = ["format_saving", "print_report"]

_HOST_ROWS = 8
_COUNTER_ROWS = 40


def print_report(console: Console, job: JobAnalysis, *, row_limit: int) -> None:
    """Print the report, the stage that costs most first.

    Args:
        console: Console to print to.
        job: Results to print.
        row_limit: Number of operators to print for each stage.
    """
    traces = f"{len(job.traces)} trace{'s' if len(job.traces) != 1 else ''}"
    console.print(Text(f"hpu-profiler: {traces}, {job.device_title}"))
    skipped = sum(trace.skipped_steps for trace in job.traces)
    if skipped:
        console.print(Text(f"{skipped} recorded steps were not read, because the traces are too large."))
    for stage in job.stages:
        epoch = f", {format_time(stage.epoch_time)} per epoch" if stage.epoch_time else ""
        console.print(Text(f"\nStage {stage.title}: {format_time(stage.step_time)} per step{epoch}", style="bold"))
        for finding in stage.findings:
            _print_finding(console, finding, stage)
        console.print(_traces(stage))
        if stage.has_device:
            console.print(_idle_time(stage))
        operators = _operators(stage, row_limit)
        for table in (_host_work(stage), _engines(stage), _device_events(stage), operators, _counters(stage)):
            if table.row_count:
                console.print(table)


def format_saving(finding: Finding, stage: StageAnalysis) -> str:
    """Return the saving of a finding as text, per epoch if the number of batches is known."""
    saving = f"Saves {format_time(finding.saving)} per step"
    if stage.batches:
        saving = f"Saves {format_time(finding.saving * stage.batches)} per epoch"
    if finding.predicted:
        return f"{saving} of predicted time"
    return saving + (" of simulated time" if finding.simulated else "")


def _print_finding(console: Console, finding: Finding, stage: StageAnalysis) -> None:
    console.print(Padding(Text(finding.title, style="bold"), (0, 0, 0, 2), expand=False))
    where = f" At {finding.location}." if finding.location else ""
    cause = f" {finding.cause}" if finding.cause else ""
    text = f"{format_saving(finding, stage)}.{where}{cause} {finding.cure}"
    console.print(Padding(Text(text), (0, 0, 0, 4), expand=False))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    return table


def _add_row(table: Table, *cells: str) -> None:
    # Text, because names from a trace may look like rich's markup.
    table.add_row(*(Text(cell) for cell in cells))


def _traces(stage: StageAnalysis) -> Table:
    columns = ("steps", "step time", "excl. comm wait", "card idle", "comm time", "comm overlap", "compiled graphs")
    table = _table("\nRanks", "", *columns)
    for each in stage.traces:
        _add_row(
            table,
            each.name + (", straggler" if each is stage.straggler else ""),
            str(each.steps),
            format_time(each.step_time) if each.steps else "-",
            format_time(each.step_time_excl_comm_wait) if each.steps and each.comm_time else "-",
            format_percent(each.idle_fraction) if each.has_device else "-",
            format_time(each.comm_time) if each.comm_time else "-",
            format_percent(each.comm_overlap / each.comm_time) if each.comm_time else "-",
            str(each.compilations.count),
        )
    return table


def _idle_time(stage: StageAnalysis) -> Table:
    causes = [cause for cause in IDLE_CAUSES if any(each.idle.by_cause.get(cause) for each in stage.traces)]
    table = _table("\nIdle time of the card, by cause", "", *causes)
    for each in stage.traces:
        if each.has_device and each.duration:
            fractions = (each.idle.by_cause.get(cause, 0.0) / each.duration for cause in causes)
            _add_row(table, each.name, *map(format_percent, fractions))
    return table


def _host_work(stage: StageAnalysis) -> Table:
    table = _table("\nHost work", "", "", "per step", "card idle", "at")
    for each in stage.traces:
        for row in each.idle.host_work[:_HOST_ROWS]:
            if each.steps and row.time:
                name = f"{row.owner.category}: {row.owner.name}".removesuffix(": ")
                times = (format_time(row.time / each.steps), format_time(row.idle / each.steps))
                _add_row(table, each.name, name, *times, row.owner.location)
    return table


def _engines(stage: StageAnalysis) -> Table:
    table = _table("\nTime by engine", "", "", "events", "time", "busy")
    for each in stage.traces:
        for row in each.engines:
            busy = format_percent(row.busy_time / each.duration) if each.duration else "-"
            _add_row(table, each.name, row.engine, str(row.events), format_time(row.time), busy)
    return table


def _device_events(stage: StageAnalysis) -> Table:
    table = _table("\nCopies and collectives", "", "", "calls", "time", "bytes", "GB/s")
    for each in stage.traces:
        for stats in (*each.memcpy, *each.collectives):
            size = format_bytes(stats.bytes) if stats.bytes else "-"
            rate = f"{stats.bandwidth.mean:.3g}" if stats.bandwidth else "-"
            _add_row(table, each.name, stats.name, str(stats.calls), format_time(stats.time), size, rate)
    return table


def _operators(stage: StageAnalysis, row_limit: int) -> Table:
    time_column = "card" if stage.has_device else "host"
    table = _table(
        f"\nOperators by time on the {time_column}", "", "calls", "HPU time", "share", "CPU time", "self CPU time"
    )
    for row, fraction in stage.operator_shares[:row_limit]:
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


def _counters(stage: StageAnalysis) -> Table:
    """Return a table of the counters that the program recorded, without those of the memory."""
    table = _table("\nCounters", "", "", "samples", "min", "mean", "max")
    for each in stage.traces:
        for row in each.own_counters[:_COUNTER_ROWS]:
            values = (f"{value:.3g}" for value in (row.min, row.mean, row.max))
            _add_row(table, each.name, row.name, str(row.samples), *values)
    return table
