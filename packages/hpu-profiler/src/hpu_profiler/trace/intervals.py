"""Set arithmetic on time intervals."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Start and end.
Interval = tuple[float, float]
#: How many times longer one list is than another for which its intervals are searched for.
_SKIP_RATIO: Final = 8


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the time that any interval covers, as disjoint intervals in order.

    >>> union([(4, 5), (0, 2), (1, 3), (7, 7)])
    [(0, 3), (4, 5)]
    """
    merged: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersection(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """Return the time that both arguments cover; both must be results of `union`.

    >>> intersection([(0, 3), (4, 6)], [(2, 5)])
    [(2, 3), (4, 5)]
    """
    if len(first) > len(second):
        first, second = second, first
    if len(second) > _SKIP_RATIO * len(first):
        return [piece for interval in first for piece in clip(second, interval)]
    common = []
    j = 0
    for start, end in first:
        while j < len(second) and second[j][1] <= start:
            j += 1
        while j < len(second) and second[j][0] < end:
            common.append((max(start, second[j][0]), min(end, second[j][1])))
            if second[j][1] > end:
                break
            j += 1
    return common


def clip(intervals: list[Interval], window: Interval) -> list[Interval]:
    """Return the parts of the intervals, a result of `union`, within a window; both ends are found in O(log n).

    >>> clip([(0, 3), (4, 6), (8, 9)], (2, 5))
    [(2, 3), (4, 5)]
    """
    start, end = window
    first = bisect_right(intervals, (start,))
    if first and intervals[first - 1][1] > start:
        first -= 1
    pieces = intervals[first : bisect_left(intervals, (end,), lo=first)]
    if pieces:
        pieces[0] = max(start, pieces[0][0]), pieces[0][1]
        pieces[-1] = pieces[-1][0], min(end, pieces[-1][1])
    return pieces


def difference(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """Return the time that only the first argument covers; both must be results of `union`.

    >>> difference([(0, 6)], [(1, 2), (4, 9)])
    [(0, 1), (2, 4)]
    """
    remaining = []
    j = 0
    for start, end in first:
        position = start
        while j < len(second) and second[j][1] <= position:
            j += 1
        k = j
        while k < len(second) and second[k][0] < end:
            if second[k][0] > position:
                remaining.append((position, second[k][0]))
            position = max(position, second[k][1])
            k += 1
        if position < end:
            remaining.append((position, end))
    return remaining


def length(intervals: Iterable[Interval]) -> float:
    """Return the total length of disjoint intervals.

    >>> length([(0, 3), (4, 5)])
    4
    """
    return sum(end - start for start, end in intervals)
