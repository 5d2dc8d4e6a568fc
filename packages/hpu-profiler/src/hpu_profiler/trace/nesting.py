"""Operators of one thread lie within each other: who is the innermost at a time, and how much time is whose own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpu_profiler.trace.model import Operator, Span
    from hpu_profiler.trace.spans import Interval


def by_thread(operators: Iterable[Operator]) -> dict[int, list[Operator]]:
    """Return the operators of each thread, in order of their begin, an outer one before what it called."""
    threads: dict[int, list[Operator]] = {}
    for operator in operators:
        threads.setdefault(operator.thread, []).append(operator)
    for its_operators in threads.values():
        its_operators.sort(key=lambda each: (each.begin, -each.end))
    return threads


def measure_own_time(operators: list[Operator]) -> None:
    """Set each operator's own time: its duration less that of what it called.

    Args:
        operators: Those of one thread, as `by_thread` gives them.
    """
    running: list[Operator] = []
    for operator in operators:
        operator.own = operator.duration
        while running and running[-1].end <= operator.begin:
            running.pop()
        if running:
            # Clocks have an end to their resolution: what was called must not take more than its caller has.
            running[-1].own -= min(operator.duration, max(running[-1].end - operator.begin, 0.0))
        running.append(operator)


def innermost(operators: list[Operator], times: Iterable[float]) -> Iterator[Operator | None]:
    """Give for each time the innermost operator that was running.

    Args:
        operators: Those of one thread, as `by_thread` gives them.
        times: In ascending order.
    """
    running: list[Operator] = []
    ahead = 0
    for time in times:
        while ahead < len(operators) and operators[ahead].begin <= time:
            while running and running[-1].end <= operators[ahead].begin:
                running.pop()
            running.append(operators[ahead])
            ahead += 1
        while running and running[-1].end < time:
            running.pop()
        yield running[-1] if running else None


def own_times(spans: Iterable[Span]) -> dict[str, list[Interval]]:
    """Return by name the time that is a span's own, and not that of a span within it.

    Args:
        spans: Those of one thread, which lie within each other.
    """
    found: dict[str, list[Interval]] = {}
    running: list[Span] = []
    position = 0.0

    def give(end: float) -> None:
        # The time since the last begin or end is that of the innermost span which is running.
        nonlocal position
        if running and end > position:
            found.setdefault(running[-1].name, []).append((position, end))
        position = max(position, end)

    for span in sorted(spans, key=lambda each: (each.begin, -each.end)):
        while running and running[-1].end <= span.begin:
            give(running[-1].end)
            running.pop()
        give(span.begin)
        running.append(span)
    while running:
        give(running[-1].end)
        running.pop()
    return found
