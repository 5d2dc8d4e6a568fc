"""Spans and operators lie within each other."""

from hpu_profiler.trace.model import Operator, Span
from hpu_profiler.trace.nesting import innermost, own_times


def test_own_time_is_not_that_of_what_lies_within() -> None:
    """A name may come up again, also within itself."""
    spans = [Span("a", 0, 10, 1), Span("b", 2, 5, 1), Span("a", 3, 4, 1), Span("b", 12, 13, 1)]

    assert own_times(spans) == {"a": [(0, 2), (3, 4), (5, 10)], "b": [(2, 3), (4, 5), (12, 13)]}


def test_no_spans_have_no_time() -> None:
    """Nothing is found in nothing."""
    assert own_times([]) == {}


def test_the_innermost_operator_is_found_for_each_time() -> None:
    """And none where none was running."""
    outer, inner = Operator("outer", 1, 9, 1, 0), Operator("inner", 3, 5, 1, 0)

    assert list(innermost([outer, inner], [0, 2, 4, 6, 10])) == [None, outer, inner, outer, None]
