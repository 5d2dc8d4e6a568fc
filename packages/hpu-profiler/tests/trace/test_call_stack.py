"""Nesting of operators and annotations."""

from hpu_profiler.trace.call_stack import innermost_spans, owner_intervals
from hpu_profiler.trace.model import HostSpan, Operator


def test_owner_of_a_time_is_that_of_the_innermost_span() -> None:
    """A name may occur several times, also nested in itself."""
    spans = [HostSpan("a", 0, 10, 1), HostSpan("b", 2, 5, 1), HostSpan("a", 3, 4, 1), HostSpan("b", 12, 13, 1)]

    assert owner_intervals(spans, lambda span, _: span.name) == {
        "a": [(0, 2), (3, 4), (5, 10)],
        "b": [(2, 3), (4, 5), (12, 13)],
    }


def test_span_can_inherit_the_owner_of_its_caller() -> None:
    spans = [HostSpan("a", 0, 10, 1), HostSpan("helper", 2, 5, 1)]

    intervals = owner_intervals(spans, lambda span, caller: caller if span.name == "helper" else span.name)

    assert intervals == {"a": [(0, 10)]}


def test_time_without_an_owner_is_left_out() -> None:
    spans = [HostSpan("a", 0, 10, 1), HostSpan("b", 2, 5, 1)]

    assert owner_intervals(spans, lambda span, _: "b" if span.name == "b" else None) == {"b": [(2, 5)]}


def test_no_spans_have_no_owners() -> None:
    assert owner_intervals([], lambda span, _: span.name) == {}


def test_innermost_operator_is_found_for_each_time() -> None:
    outer, inner = Operator("outer", 1, 9, 1, 0), Operator("inner", 3, 5, 1, 0)

    assert list(innermost_spans([outer, inner], [0, 2, 4, 6, 10])) == [None, outer, inner, outer, None]
