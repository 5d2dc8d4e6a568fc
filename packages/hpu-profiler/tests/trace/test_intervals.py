"""Interval arithmetic, compared with sets of points."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hpu_profiler.trace.intervals import Interval, clip, difference, intersection, length, union

_intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair))))


def _points(intervals: list[Interval]) -> set[int]:
    return {point for start, end in intervals for point in range(int(start), int(end))}


@given(_intervals)
def test_union_covers_the_same_points_with_disjoint_intervals(intervals: list[Interval]) -> None:
    merged = union(intervals)

    assert _points(merged) == _points(intervals)
    assert length(merged) == len(_points(intervals))
    assert all(before[1] < after[0] for before, after in itertools.pairwise(merged))


@given(_intervals, _intervals)
def test_intersection_and_difference_equal_those_of_sets(first: list[Interval], second: list[Interval]) -> None:
    one, other = union(first), union(second)

    assert _points(intersection(one, other)) == _points(one) & _points(other)
    assert _points(difference(one, other)) == _points(one) - _points(other)


@given(_intervals, st.integers(0, 30), st.integers(1, 10))
def test_clipped_intervals_are_those_of_the_window(intervals: list[Interval], start: int, size: int) -> None:
    pieces = clip(union(intervals), (start, start + size))

    assert _points(pieces) == _points(intervals) & set(range(start, start + size))
    assert all(begin < end for begin, end in pieces)
