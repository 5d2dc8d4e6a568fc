"""Tests of entries of the register and of the values that they expect."""

from __future__ import annotations

import pytest
from one_assumption import make_assumption, skip

from hpu_doctor.verify.assumption import (
    SkippedError,
    Subject,
    at_least,
    contains,
    describe,
    difference,
    is_expected,
    matches,
    one_of,
)


@pytest.mark.parametrize(
    ("expected", "seen", "result"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        ("a", "a", True),
        (contains("acquire"), "Device acquire failed.", True),
        (contains("acquire"), "no error", False),
        (contains("acquire"), None, False),
        (matches("GAUDI[23]?"), "GAUDI2", True),
        (matches("GAUDI[23]?"), "GAUDI2B", False),
        (one_of(1, 2), 2, True),
        (one_of(1, 2), 3, False),
        (at_least(3), 3, True),
        (at_least(3), 2.5, False),
        (at_least(3), "3", False),
        ([at_least(1), "x"], [2, "x"], True),
        ([at_least(1), "x"], [2], False),
        ({"a": contains("b")}, {"a": "abc"}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
    ],
)
def test_holds(expected: object, seen: object, result: bool) -> None:
    assert is_expected(expected, seen) is result


@pytest.mark.parametrize(
    ("releases", "release", "applies"),
    [("", "1.24.1", True), (">=1.20", "1.19.0", False), (">=1.20", None, True), ("<1.21", "1.20.1", True)],
)
def test_claimed_releases(releases: str, release: str | None, applies: bool) -> None:
    assert make_assumption(releases=releases).applies_to(release, "GAUDI2") is applies


def test_id_and_statement_are_those_of_the_program() -> None:
    subject = Subject("Numbers")

    @subject.assume(source="Peano", expected=1, means={"hpu-core": "counting would be wrong."})
    def one_is_one() -> object:
        """One is one."""
        return 1

    (assumption,) = subject
    assert (assumption.id, assumption.statement, assumption.subject) == ("one-is-one", "One is one.", "Numbers")


def test_table_has_a_value_for_each_case() -> None:
    """An error is a value, too, and only what differs is shown."""
    subject = Subject("Numbers")
    cases = {"one": (1, lambda: 1), "two": (2, lambda: 3), "three": (contains("division"), lambda: 1 / 0)}

    subject.table("numbers", "Numbers are numbers.", cases, source="Peano", means={"hpu-core": "it would be wrong."})

    (assumption,) = subject
    seen = assumption.program()
    assert seen == {"one": 1, "two": 3, "three": "ZeroDivisionError: division by zero"}
    assert difference(assumption.expected, seen) == ({"two": 2}, {"two": 3})
    assert difference(assumption.expected, "it crashed") == (assumption.expected, "it crashed")


def test_case_that_cannot_be_tried_leaves_out_the_table() -> None:
    subject = Subject("Numbers")
    subject.table("numbers", "Numbers are.", {"one": (1, skip)}, source="Peano", means={"hpu-core": "it would fail."})
    (assumption,) = subject

    with pytest.raises(SkippedError, match="no tail"):
        assumption.program()


def test_describe_shows_nested_values() -> None:
    assert describe({"a": [1, at_least(2)], "b": contains("c")}) == "a: [1, at least 2]; b: text with 'c'"
