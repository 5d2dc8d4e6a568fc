"""Tables of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_profiler._formatting import format_bytes, format_percent, format_time
from hpu_profiler.analysis.idle_time import IDLE_CAUSES
from hpu_profiler.analysis.operators import operator_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hpu_profiler.analysis.job import StageAnalysis
    from hpu_profiler.analysis.operators import OperatorStats
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis

#: Slowest ranks of a large job that the comparison of ranks shows; the other tables show one of them.
MAX_SLOW_RANKS = 6
_HOST_ROWS = 12
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
    shown = stage.shown(MAX_SLOW_RANKS)
    is_part = len(shown) < len(stage.traces)
    rows = []
    for each in shown:
        device = (
            format_time(each.step_time_excl_comm_wait) if each.steps and each.comm_time else _NONE,
            format_percent(each.idle_fraction) if each.has_device else _NONE,
            format_time(each.comm_time) if each.comm_time else _NONE,
            format_time(each.exposed_comm) if each.comm_time else _NONE,
            str(each.compilations.count),
        )
        host = f" on {each.trace.host}" if is_part and each.trace.host else ""
        name = f"{each.name}{host}{', straggler' if each in stage.slow_ranks else ''}"
        step_time = format_time(each.step_time) if each.steps else _NONE
        rows.append((name, str(each.steps), step_time, *(device if stage.has_device else ())))
    device_columns = ("excl. comm wait", "card idle", "comm time", "exposed comm", "compiled graphs")
    title = "Ranks"
    if is_part:
        title += f": the {MAX_SLOW_RANKS} slowest of {len(stage.traces)}, the median and the fastest"
    return Table(title, ("", "steps", "step time", *(device_columns if stage.has_device else ())), rows)


def details(stage: StageAnalysis, *, max_operators: int) -> list[Table]:
    """Return the other tables of a stage, without empty ones."""
    tables = [
        _idle_time(stage),
        _host_work(stage),
        _engines(stage),
        _recipes(stage),
        operators(
            f"Operators by time on the {'card' if stage.has_device else 'host'}",
            operator_shares(stage.operators)[:max_operators],
            has_memory=any(each.trace.has_memory for each in stage.traces),
        ),
    ]
    return [table for table in tables if table.rows]


def _idle_time(stage: StageAnalysis) -> Table:
    causes = [cause for cause in IDLE_CAUSES if any(each.idle.by_cause.get(cause) for each in stage.traces)]
    rows = [
        (each.name, *(format_percent(each.idle.by_cause.get(cause, 0.0) / each.duration) for cause in causes))
        for each in stage.shown(1)
        if causes and each.has_device and each.duration
    ]
    return Table("Idle time of the card, by cause", ("", *causes), rows)


def _host_work(stage: StageAnalysis) -> Table:
    def cells(trace: TraceAnalysis) -> Iterable[tuple[str, ...]]:
        for row in trace.idle.host_work[:_HOST_ROWS]:
            if trace.steps and row.time:
                work = f"{row.owner.category}: {row.owner.name}".removesuffix(": ")
                times = format_time(row.time / trace.steps), format_time(row.idle / trace.steps)
                yield work, row.owner.location, *times

    return _of_each_trace(stage, "Host work", "work|at|per step|card idle", 2, cells)


def _of_each_trace(
    stage: StageAnalysis,
    title: str,
    columns: str,
    names: int,
    cells: Callable[[TraceAnalysis], Iterable[tuple[str, ...]]],
) -> Table:
    """Return a table with rows of each trace, which begin with its name.

    `columns` has the heads of the other columns between bars, and `names` is the number of those with names.
    """
    rows = [(each.name, *row) for each in stage.shown(1) for row in cells(each)]
    return Table(title, ("", *columns.split("|")), rows, 1 + names)


def _engines(stage: StageAnalysis) -> Table:
    def cells(trace: TraceAnalysis) -> Iterable[tuple[str, ...]]:
        for row in trace.engines:
            busy = format_percent(row.busy_time / trace.duration) if trace.duration else _NONE
            longest = row.top_kernels[0][0] if row.top_kernels else ""
            yield row.engine, longest, str(row.events), format_time(row.time), busy

    return _of_each_trace(stage, "Time by engine", "engine|longest|events|time|busy", 2, cells)


def _recipes(stage: StageAnalysis) -> Table:
    def cells(trace: TraceAnalysis) -> Iterable[tuple[str, ...]]:
        for row in trace.recipes[:_RECIPE_ROWS]:
            yield str(row.recipe), row.name, row.top_kernel, str(row.events), format_time(row.busy_time)

    return _of_each_trace(stage, "Graphs (recipes)", "recipeId|recipeName|longest kernel|events|busy", 3, cells)


def operators(title: str, rows: Iterable[tuple[OperatorStats, float]], *, has_memory: bool) -> Table:
    """Return the table of operators.

    Args:
        title: Title of the table.
        rows: Operators to show, each with its share.
        has_memory: Whether allocations were recorded.
    """
    cells = [
        (
            f"{row.name} {row.shapes}".rstrip(),
            str(row.calls),
            format_time(row.device_time) if row.device_events else _NONE,
            format_percent(fraction),
            format_time(row.cpu_time),
            format_time(row.self_cpu_time),
            *((format_bytes(row.self_memory),) if has_memory else ()),
        )
        for row, fraction in rows
    ]
    columns = ("", "calls", "HPU time", "share", "CPU time", "self CPU time", *(("self memory",) if has_memory else ()))
    return Table(title, columns, cells)
