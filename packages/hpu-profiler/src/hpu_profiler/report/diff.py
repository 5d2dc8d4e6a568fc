"""Text report on the difference between two jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpu_profiler._formatting import format_percent, format_time
from hpu_profiler.report.tables import Table
from hpu_profiler.report.text import print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from hpu_profiler.analysis.trace_diff import Change, StageDiff

__all__ = ["print_diff"]

_COLUMNS = ("", "before", "after", "difference", "")


def print_diff(console: Console, stages: Iterable[StageDiff], *, row_limit: int) -> None:
    """Print the differences.

    Args:
        console: Console to print to.
        stages: Differences in each stage.
        row_limit: Number of operators to print for each stage.
    """
    for stage in stages:
        title = f"Stage {stage.stage or 'recorded time'}: time per step"
        print_table(console, Table(title, _COLUMNS, [_cells(each) for each in stage.times]))
        operators = [(*_cells(each), f"{each.calls_before:g} -> {each.calls_after:g}") for each in stage.operators]
        print_table(console, Table("Operators: time per step", (*_COLUMNS, "calls"), operators[:row_limit]))


def _cells(each: Change) -> tuple[str, ...]:
    sign = "+" if each.difference > 0 else ""
    ratio = sign + format_percent(each.difference / each.before) if each.before else "new"
    return each.name, format_time(each.before), format_time(each.after), sign + format_time(each.difference), ratio
