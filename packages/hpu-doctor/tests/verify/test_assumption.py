"""Tests of entries of the register and of the values that they expect."""

from __future__ import annotations

import pytest
from one_assumption import make_assumption

from hpu_doctor.verify.assumption import AtLeast, Contains, Matches, OneOf, Points, Subject, describe, holds


@pytest.mark.parametrize(
    ("expected", "seen", "result"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        ("a", "a", True),
        (Contains("acquire"), "Device acquire failed.", True),
        (Contains("acquire"), "no error", False),
        (Contains("acquire"), None, False),
        (Matches("GAUDI[23]?"), "GAUDI2", True),
        (Matches("GAUDI[23]?"), "GAUDI2B", False),
        (OneOf(1, 2), 2, True),
        (OneOf(1, 2), 3, False),
        (AtLeast(3), 3, True),
        (AtLeast(3), 2.5, False),
        (AtLeast(3), "3", False),
        ([AtLeast(1), "x"], [2, "x"], True),
        ([AtLeast(1), "x"], [2], False),
        ({"a": Contains("b")}, {"a": "abc"}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (Points("launch"), [{"kind": "launch", "seconds": 0.5}], True),
        (Points("launch"), [{"kind": "launch", "seconds": 0.0}], False),
    ],
)
def test_holds(expected: object, seen: object, result: bool) -> None:
    assert holds(expected, seen) is result


def test_describe_shows_nested_values() -> None:
    assert describe({"a": [1, AtLeast(2)], "b": Contains("c")}) == "a: [1, at least 2]; b: text with 'c'"


@pytest.mark.parametrize(
    ("releases", "release", "applies"),
    [("", "1.24.1", True), (">=1.20", "1.19.0", False), (">=1.20", None, True), ("<1.21", "1.20.1", True)],
)
def test_claimed_releases(releases: str, release: str | None, applies: bool) -> None:
    assert make_assumption(releases=releases).applies_to(release, "GAUDI2") is applies


def test_claimed_generations() -> None:
    assumption = make_assumption(generations=("GAUDI",))

    assert assumption.applies_to("1.19.0", "GAUDI")
    assert not assumption.applies_to("1.19.0", "GAUDI2")


def test_id_and_statement_are_those_of_the_program() -> None:
    subject = Subject("Numbers")

    @subject.assume(source="Peano", expected=1, means={"hpu-core": "counting would be wrong."})
    def one_is_one() -> object:
        """One is one."""
        return 1

    (assumption,) = subject
    assert (assumption.id, assumption.statement, assumption.subject) == ("one-is-one", "One is one.", "Numbers")
