"""Text report on the difference between two jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from hpu_profiler._formatting import format_percent, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from hpu_profiler.analysis.trace_diff import Change, StageDiff

__all__ = ["print_diff"]


def print_diff(console: Console, stages: Iterable[StageDiff], *, row_limit: int) -> None:
    """Print the differences.

    Args:
        console: Console to print to.
        stages: Differences in each stage.
        row_limit: Number of operators to print for each stage.
    """
    for stage in stages:
        title = f"\nStage {stage.stage or 'recorded time'}"
        console.print(_table(f"{title}: time per step", stage.times, with_calls=False))
        console.print(_table("\nOperators: time per step", stage.operators[:row_limit], with_calls=True))


def _table(title: str, changes: Iterable[Change], *, with_calls: bool) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(("", "before", "after", "difference", "", *(("calls",) if with_calls else ()))):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    for each in changes:
        sign = "+" if each.difference > 0 else ""
        ratio = sign + format_percent(each.difference / each.before) if each.before else "new"
        difference = sign + format_time(each.difference)
        calls = (f"{each.calls_before:g} -> {each.calls_after:g}",) if with_calls else ()
        cells = (each.name, format_time(each.before), format_time(each.after), difference, ratio, *calls)
        table.add_row(*map(Text, cells))
    return table
