"""Arithmetic of intervals of time: which of them cover what. An interval is a begin and an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the time that any of the intervals covers, as intervals apart from each other, in order.

    >>> union([(4, 5), (0, 2), (1, 3), (7, 7)])
    [(0, 3), (4, 5)]
    """
    merged: list[Interval] = []
    for begin, end in sorted(each for each in intervals if each[1] > each[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def intersection(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """Return the time that both cover; each must be as `union` returns it.

    >>> intersection([(0, 3), (4, 6)], [(2, 5)])
    [(2, 3), (4, 5)]
    """
    common = []
    i = j = 0
    while i < len(first) and j < len(second):
        begin, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if begin < end:
            common.append((begin, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common


def difference(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """Return the time that the first covers and the second does not; each must be as `union` returns it.

    >>> difference([(0, 6)], [(1, 2), (4, 9)])
    [(0, 1), (2, 4)]
    """
    left = []
    j = 0
    for begin, end in first:
        position = begin
        while j < len(second) and second[j][1] <= position:
            j += 1
        k = j
        while k < len(second) and second[k][0] < end:
            if second[k][0] > position:
                left.append((position, second[k][0]))
            position = max(position, second[k][1])
            k += 1
        if position < end:
            left.append((position, end))
    return left


def length(intervals: Iterable[Interval]) -> float:
    """Return the time that intervals cover that are apart from each other.

    >>> length([(0, 3), (4, 5)])
    4
    """
    return sum(end - begin for begin, end in intervals)
