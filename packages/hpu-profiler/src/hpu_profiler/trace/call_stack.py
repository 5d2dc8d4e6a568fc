"""Call stacks: operators and annotations of one thread nest in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import HostSpan, Operator

__all__ = ["group_by_thread", "innermost_operators", "self_intervals", "set_self_times"]


def group_by_thread(operators: Iterable[Operator]) -> dict[int, list[Operator]]:
    """Return the operators of each thread, ordered by start, callers before callees."""
    threads: dict[int, list[Operator]] = {}
    for operator in operators:
        threads.setdefault(operator.thread, []).append(operator)
    for stack in threads.values():
        stack.sort(key=_call_order)
    return threads


def set_self_times(operators: list[Operator]) -> None:
    """Set the self time of each operator: its duration without the operators that it called.

    Args:
        operators: Operators of one thread from `group_by_thread`.
    """
    stack: list[Operator] = []
    for operator in operators:
        operator.self_time = operator.duration
        while stack and stack[-1].end <= operator.start:
            stack.pop()
        if stack:
            # Clock resolution can let a callee end after its caller.
            stack[-1].self_time -= min(operator.duration, max(stack[-1].end - operator.start, 0.0))
        stack.append(operator)


def innermost_operators(operators: list[Operator], times: Iterable[float]) -> Iterator[Operator | None]:
    """Yield the innermost operator that runs at each time, or None.

    Args:
        operators: Operators of one thread from `group_by_thread`.
        times: Times in ascending order.
    """
    stack: list[Operator] = []
    index = 0
    for time in times:
        while index < len(operators) and operators[index].start <= time:
            while stack and stack[-1].end <= operators[index].start:
                stack.pop()
            stack.append(operators[index])
            index += 1
        while stack and stack[-1].end < time:
            stack.pop()
        yield stack[-1] if stack else None


def self_intervals(spans: Iterable[HostSpan]) -> dict[str, list[Interval]]:
    """Return the intervals in which a span of each name is the innermost one.

    Args:
        spans: Nested spans of one thread.
    """
    intervals: dict[str, list[Interval]] = {}
    stack: list[HostSpan] = []
    position = 0.0

    def advance(end: float) -> None:
        # The time since the last start or end belongs to the innermost span.
        nonlocal position
        if stack and end > position:
            intervals.setdefault(stack[-1].name, []).append((position, end))
        position = max(position, end)

    for span in sorted(spans, key=_call_order):
        while stack and stack[-1].end <= span.start:
            advance(stack[-1].end)
            stack.pop()
        advance(span.start)
        stack.append(span)
    while stack:
        advance(stack[-1].end)
        stack.pop()
    return intervals


def _call_order(span: HostSpan) -> tuple[float, float]:
    return span.start, -span.end
