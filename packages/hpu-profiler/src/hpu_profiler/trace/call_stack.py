"""Call stacks: operators and annotations of one thread nest in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import HostSpan, Operator

_OwnerT = TypeVar("_OwnerT", bound="Hashable")
_SpanT = TypeVar("_SpanT", bound="HostSpan")


def group_by_thread(spans: Iterable[_SpanT]) -> dict[int, list[_SpanT]]:
    """Return the spans of each thread, ordered by start, callers before callees."""
    threads: dict[int, list[_SpanT]] = {}
    for span in spans:
        threads.setdefault(span.thread, []).append(span)
    for stack in threads.values():
        stack.sort(key=call_order)
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


def innermost_spans(spans: list[_SpanT], times: Iterable[float]) -> Iterator[_SpanT | None]:
    """Yield the innermost span that runs at each time, or None.

    Args:
        spans: Spans of one thread from `group_by_thread`.
        times: Times in ascending order.
    """
    stack: list[_SpanT] = []
    index = 0
    for time in times:
        while index < len(spans) and spans[index].start <= time:
            while stack and stack[-1].end <= spans[index].start:
                stack.pop()
            stack.append(spans[index])
            index += 1
        while stack and stack[-1].end < time:
            stack.pop()
        yield stack[-1] if stack else None


def owner_intervals(
    spans: Iterable[HostSpan], owner: Callable[[HostSpan, _OwnerT | None], _OwnerT | None]
) -> dict[_OwnerT, list[Interval]]:
    """Return the intervals in which a span of each owner is the innermost one.

    Args:
        spans: Nested spans of one thread.
        owner: Function that returns the owner of a span from the span and the owner of its caller.
    """
    intervals: dict[_OwnerT, list[Interval]] = {}
    # End and owner of each span that runs, with the intervals of the owner.
    stack: list[tuple[float, _OwnerT | None, list[Interval]]] = []
    others: list[Interval] = []
    position = 0.0

    def advance(end: float) -> None:
        # The time since the last start or end belongs to the innermost span.
        nonlocal position
        if end > position:
            if stack:
                pieces = stack[-1][2]
                if pieces and pieces[-1][1] == position:
                    pieces[-1] = (pieces[-1][0], end)
                else:
                    pieces.append((position, end))
            position = end

    for span in sorted(spans, key=call_order):
        while stack and stack[-1][0] <= span.start:
            advance(stack[-1][0])
            stack.pop()
        advance(span.start)
        _, caller, pieces = stack[-1] if stack else (0.0, None, others)
        own = owner(span, caller)
        if own is not caller:
            pieces = others if own is None else intervals.setdefault(own, [])
        stack.append((span.end, own, pieces))
    while stack:
        advance(stack[-1][0])
        stack.pop()
    return {own: pieces for own, pieces in intervals.items() if pieces}


def call_order(span: HostSpan) -> tuple[float, float]:
    """Return the key that sorts spans by start, callers before callees."""
    return span.start, -span.end
