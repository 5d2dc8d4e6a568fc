"""Text report: the curve of a plan as a table with bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from hpu_bucketing.plan.bucket_plan import BucketPlan

__all__ = ["format_boundaries", "format_seconds", "print_plan"]

_BAR_WIDTH: Final = 30
_MINUTE: Final = 60
_HOUR: Final = 3600


def print_plan(console: Console, plan: BucketPlan, samples: int, total: int | None = None) -> None:
    """Print a plan that was made from a number of lengths; `total` is that of the data set."""
    part = "" if total in {None, samples} else f" of {total:,}"
    console.print(Text(f"hpu-bucketing: {samples:,}{part} samples, batches of {plan.batch_size}"))
    console.print(_curve(plan))
    console.print(Text(f"\nChosen: {format_boundaries(plan.dimensions)}", style="bold"))
    console.print(Text(plan.reason))
    limits = ", ".join(str(list(dimension)) for dimension in plan.dimensions)
    console.print(Text(f"\nplan = BucketPlan.from_boundaries({limits})"))


def format_boundaries(dimensions: tuple[tuple[int, ...], ...]) -> str:
    """Return boundaries as text, dimensions separated by "x".

    >>> format_boundaries(((128, 256), (64,)))
    '128, 256 x 64'
    """
    return " x ".join(", ".join(map(str, limits)) for limits in dimensions)


def format_seconds(seconds: float | None) -> str:
    """Return a time as text.

    >>> format_seconds(None), format_seconds(42), format_seconds(600), format_seconds(7200)
    ('-', '42 s', '10.0 min', '2.0 h')
    """
    if seconds is None:
        return "-"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.1f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def _curve(plan: BucketPlan) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("compilations", "padding", "", "estimated time", "boundaries"):
        table.add_column(name, justify="left" if name in {"", "boundaries"} else "right", no_wrap=name != "boundaries")
    for point in plan.curve:
        chosen = point.boundaries == plan.dimensions
        cells = (
            f"{'> ' if chosen else ''}{point.compilations}",
            f"{point.padding_share:.1%}",
            "█" * round(_BAR_WIDTH * point.padding_share),
            format_seconds(point.seconds),
            format_boundaries(point.boundaries),
        )
        table.add_row(*(Text(cell) for cell in cells), style="bold" if chosen else "")
    return table
