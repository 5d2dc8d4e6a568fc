"""Tables of a report, which the terminal and the page show alike."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from hpu_profiler._formatting import format_bytes, format_percent, format_time
from hpu_profiler.analysis.idle_time import IDLE_CAUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.analysis.job import StageAnalysis

__all__ = ["Table", "details", "ranks"]

_HOST_ROWS = 12
_COUNTER_ROWS = 40
_RECIPE_ROWS = 20
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """Table of texts.

    Attributes:
        title: Title, without the stage.
        columns: Heads of the columns.
        rows: Cells of each row.
        names: Number of columns with names, which come first; the others have figures.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    names: int = 1


def ranks(stage: StageAnalysis) -> Table:
    """Return the table that compares the ranks."""
    rows = []
    for each in stage.traces:
        card = (
            format_time(each.step_time_excl_comm_wait) if each.steps and each.comm_time else _NONE,
            format_percent(each.idle_fraction) if each.has_device else _NONE,
            format_time(each.comm_time) if each.comm_time else _NONE,
            format_percent(each.comm_overlap / each.comm_time) if each.comm_time else _NONE,
            str(each.compilations.count),
        )
        name = each.name + (", straggler" if each is stage.straggler else "")
        step_time = format_time(each.step_time) if each.steps else _NONE
        rows.append((name, str(each.steps), step_time, *(card if stage.has_device else ())))
    card_columns = ("excl. comm wait", "card idle", "comm time", "comm overlap", "compiled graphs")
    return Table("Ranks", ("", "steps", "step time", *(card_columns if stage.has_device else ())), rows)


def details(stage: StageAnalysis, *, max_operators: int) -> list[Table]:
    """Return the other tables of a stage, without empty ones.

    Args:
        stage: Results of the stage.
        max_operators: Number of operators to show.
    """
    tables = [
        _idle_time(stage),
        _critical_path(stage),
        _host_work(stage),
        _engines(stage),
        _recipes(stage),
        _launches(stage),
        _device_events(stage),
        _collective_sizes(stage),
        _patterns(stage),
        _operators(stage, max_operators),
        _counters(stage),
    ]
    return [table for table in tables if table.rows]


def _idle_time(stage: StageAnalysis) -> Table:
    causes = [cause for cause in IDLE_CAUSES if any(each.idle.by_cause.get(cause) for each in stage.traces)]
    rows = [
        (each.name, *(format_percent(each.idle.by_cause.get(cause, 0.0) / each.duration) for cause in causes))
        for each in stage.traces
        if causes and each.has_device and each.duration
    ]
    return Table("Idle time of the card, by cause", ("", *causes), rows)


def _critical_path(stage: StageAnalysis) -> Table:
    path = stage.critical_path
    if not path:
        return Table("", (), ())
    parts = [(each.host, each.card, each.network) for each in path]
    rows = [
        (each.name, each.rank, *map(format_time, (*part, each.duration)))
        for each, part in zip(path, parts, strict=True)
    ]
    means = tuple(fmean(column) for column in zip(*parts, strict=True))
    rows.append(("mean", "", *map(format_time, (*means, sum(means)))))
    return Table("Critical path", ("step", "through", "host", "card", "network", "sum"), rows, 2)


def _host_work(stage: StageAnalysis) -> Table:
    rows = [
        (
            each.name,
            f"{row.owner.category}: {row.owner.name}".removesuffix(": "),
            row.owner.location,
            format_time(row.time / each.steps),
            format_time(row.idle / each.steps),
        )
        for each in stage.traces
        for row in each.idle.host_work[:_HOST_ROWS]
        if each.steps and row.time
    ]
    return Table("Host work", ("", "work", "at", "per step", "card idle"), rows, 3)


def _engines(stage: StageAnalysis) -> Table:
    rows = [
        (
            each.name,
            row.engine,
            row.top_kernels[0][0] if row.top_kernels else "",
            str(row.events),
            format_time(row.time),
            format_percent(row.busy_time / each.duration) if each.duration else _NONE,
        )
        for each in stage.traces
        for row in each.engines
    ]
    return Table("Time by engine", ("", "engine", "longest", "events", "time", "busy"), rows, 3)


def _recipes(stage: StageAnalysis) -> Table:
    rows = [
        (
            each.name,
            str(row.recipe),
            row.name,
            row.top_kernel,
            str(row.launches),
            str(row.events),
            format_time(row.busy_time),
        )
        for each in stage.traces
        for row in each.recipes[:_RECIPE_ROWS]
    ]
    columns = ("", "recipeId", "recipeName", "longest kernel", "launches", "events", "busy")
    return Table("Graphs (recipes)", columns, rows, 4)


def _launches(stage: StageAnalysis) -> Table:
    rows = [
        (
            each.name,
            str(each.launches.launches),
            str(each.launches.short_kernels),
            format_time(each.launches.delay),
            f"{each.queue.mean:.1f}",
            str(each.queue.max),
            format_percent(each.queue.empty_fraction),
        )
        for each in stage.traces
        if each.launches.launches
    ]
    columns = ("", "launches", "short kernels", "launch delay", "queue, mean", "queue, max", "queue empty")
    return Table("Launches and queue", columns, rows)


def _device_events(stage: StageAnalysis) -> Table:
    rows = [
        (
            each.name,
            stats.name,
            str(stats.calls),
            format_time(stats.time),
            format_bytes(stats.bytes) if stats.bytes else _NONE,
            f"{stats.bandwidth.mean:.3g}" if stats.bandwidth else _NONE,
        )
        for each in stage.traces
        for stats in (*each.memcpy, *each.collectives)
    ]
    return Table("Copies and collectives", ("", "operation", "calls", "time", "bytes", "GB/s"), rows, 2)


def _collective_sizes(stage: StageAnalysis) -> Table:
    rows = [
        (
            each.name,
            row.name,
            format_bytes(row.size),
            str(row.calls),
            format_time(row.time),
            f"{row.rate:.3g}",
            format_percent(row.link_fraction) if row.link_fraction is not None else _NONE,
        )
        for each in stage.traces
        for row in each.collective_sizes
    ]
    columns = ("", "collective", "up to", "calls", "median time", "GB/s", "of the links")
    return Table("Bandwidth of collectives by size", columns, rows, 2)


def _patterns(stage: StageAnalysis) -> Table:
    rows = [
        (each.name, " → ".join(row.kernels), str(row.count), format_time(row.time))
        for each in stage.traces
        for row in each.patterns
    ]
    return Table("Kernel sequences that repeat", ("", "sequence", "count", "time"), rows, 2)


def _operators(stage: StageAnalysis, limit: int) -> Table:
    has_memory = any(each.trace.has_memory for each in stage.traces)
    rows = [
        (
            row.name,
            str(row.calls),
            format_time(row.device_time) if row.device_events else _NONE,
            format_percent(fraction),
            format_time(row.cpu_time),
            format_time(row.self_cpu_time),
            *((format_bytes(row.self_memory),) if has_memory else ()),
        )
        for row, fraction in stage.operator_shares[:limit]
    ]
    columns = ("", "calls", "HPU time", "share", "CPU time", "self CPU time", *(("self memory",) if has_memory else ()))
    return Table(f"Operators by time on the {'card' if stage.has_device else 'host'}", columns, rows)


def _counters(stage: StageAnalysis) -> Table:
    rows = [
        (each.name, row.name, str(row.samples), *(f"{value:.3g}" for value in (row.min, row.mean, row.max)))
        for each in stage.traces
        for row in each.own_counters[:_COUNTER_ROWS]
    ]
    return Table("Counters", ("", "counter", "samples", "min", "mean", "max"), rows, 2)
