"""Nesting of operators and annotations."""

from hpu_profiler.trace.call_stack import innermost_operators, self_intervals
from hpu_profiler.trace.model import HostSpan, Operator


def test_self_intervals_exclude_nested_spans() -> None:
    """A name may occur several times, also nested in itself."""
    spans = [HostSpan("a", 0, 10, 1), HostSpan("b", 2, 5, 1), HostSpan("a", 3, 4, 1), HostSpan("b", 12, 13, 1)]

    assert self_intervals(spans) == {"a": [(0, 2), (3, 4), (5, 10)], "b": [(2, 3), (4, 5), (12, 13)]}


def test_no_spans_have_no_self_intervals() -> None:
    assert self_intervals([]) == {}


def test_innermost_operator_is_found_for_each_time() -> None:
    outer, inner = Operator("outer", 1, 9, 1, 0), Operator("inner", 3, 5, 1, 0)

    assert list(innermost_operators([outer, inner], [0, 2, 4, 6, 10])) == [None, outer, inner, outer, None]
