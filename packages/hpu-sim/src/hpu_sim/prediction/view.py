"""What plans and reports show of a predicted step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_sim.common.document import Part, Table, table
from hpu_sim.common.formatting import (
    format_bounds,
    format_bytes,
    format_int,
    format_range,
    format_seconds,
    show_location,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.prediction.step import CollectiveGroup, Cost, Step

#: Most rows of a table on a page, of which the JSON has all, and most costs in a terminal.
MAX_ROWS: Final = 20
_BRIEF_COSTS: Final = 3


def time_of(step: Step) -> str:
    """Return the time of a step and its range."""
    return f"{format_seconds(step.seconds)} ({format_range(step.fast_seconds, step.slow_seconds)})"


def limits(step: Step) -> str:
    """Return what limits a step, and what it communicates."""
    calls, size = (sum(getattr(each, name) for each in step.collectives) for name in ("count", "bytes"))
    word = "collective" if calls == 1 else "collectives"
    collectives = f"{format_int(calls)} {word} ({format_bytes(size)})" if calls else "no collective"
    return f"limited by {format_bounds(step.bounds)}; {collectives} per step"


def work(step: Step) -> str:
    """Return what a step computes, and the graphs that are compiled for it."""
    graphs = "one per operator and shape (eager)"
    if step.graphs is not None:
        first = format_range(*step.first_steps_seconds)
        graphs = f"{step.graphs}; the first steps of published runs took {first} longer than later ones"
    return f"{step.flops:.4g} floating-point operations per step and rank; graphs to compile: {graphs}"


def tables(step: Step, *, is_brief: bool = True) -> Iterator[Part]:
    """Yield the costs and the collectives of a step.

    Args:
        step: Step.
        is_brief: Whether a terminal shows them.
    """
    yield _costs(step, is_brief=is_brief)
    columns: dict[str, Callable[[CollectiveGroup], str]] = {
        "collective": lambda each: each.name,
        "part of the step": lambda each: each.phase,
        "calls": lambda each: format_int(each.count),
        "bytes of the rank": lambda each: format_bytes(each.bytes),
        "ranks": lambda each: str(each.ranks),
        "boxes": lambda each: str(each.boxes),
    }
    if step.collectives:
        yield table(columns, step.collectives, title="collectives of a step", is_brief=is_brief)


def _costs(step: Step, *, is_brief: bool) -> Table:
    columns: dict[str, Callable[[Cost], str]] = {
        "cost": lambda each: show_location(each.name) or "no line of the program",
        "time": lambda each: f"{format_seconds(each.seconds)}, {each.seconds / (step.seconds or 1.0):.0%}",
        "limited by": lambda each: each.bound,
        "FLOP": lambda each: f"{each.flops:.3g}" if each.flops else "",
        "bytes": lambda each: format_bytes(each.bytes) if each.bytes else "",
        "operators": lambda each: format_int(each.operators) if each.operators else "",
        "mostly": lambda each: each.mostly,
        "line": lambda each: show_location(each.location),
    }
    title, words = "largest costs of a step", frozenset(("mostly", "line"))
    return table(columns, step.costs[:MAX_ROWS], title=title, words=words, most=_BRIEF_COSTS, is_brief=is_brief)
