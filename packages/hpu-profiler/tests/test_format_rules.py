"""The rules of the format that tests hold traces against can be broken."""

import pytest

from .format_rules import Event, violations


def _event(phase: str, ts: float = 0, **more: object) -> Event:
    return {"ph": phase, "name": "x", "pid": 1, "tid": 1, "ts": ts, **more}


def _arrow(phase: str, ts: float = 0, number: int = 1) -> Event:
    return _event(phase, ts, cat="ac2g", id=number)


_SLICE = _event("X", dur=5)


def test_a_trace_by_the_rules_breaks_none() -> None:
    """With what lies within or behind another, an arrow, and a name of a thread."""
    events = [_SLICE, _event("X", 1, dur=4), _event("X", 5, dur=1), _arrow("s", 1), _arrow("f", 5)]

    assert violations([*events, _event("M") | {"name": "thread_name", "args": {"name": "main"}}]) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([_event("X", dur=-1)], "less than none"),
        ([_event("X")], "less than none"),
        ([_event("i") | {"ts": None}], "no time"),
        ([_SLICE, _event("X", 3, dur=5)], "neither apart nor within"),
        ([_SLICE, _arrow("f")], "an arrow from nowhere"),
        ([_SLICE, _arrow("s")], "an arrow to nowhere"),
        ([_SLICE, _arrow("s"), _arrow("f", 9)], "no event encloses"),
        ([_event("M") | {"name": "thread_name", "args": {}}], "metadata without what it says"),
        ([{**_SLICE, "name": ""}], "no name"),
    ],
)
def test_what_breaks_a_rule_is_told(events: list[Event], text: str) -> None:
    """Each rule by an event that breaks it."""
    (found,) = violations(events)

    assert text in found
