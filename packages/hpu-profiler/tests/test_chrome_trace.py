"""The checker of the Chrome trace format."""

import pytest

from .chrome_trace import JsonEvent, violations


def _event(phase: str, ts: float = 0, **fields: object) -> JsonEvent:
    return {"ph": phase, "name": "x", "pid": 1, "tid": 1, "ts": ts, **fields}


def _flow(phase: str, ts: float = 0, number: int = 1) -> JsonEvent:
    return _event(phase, ts, cat="ac2g", id=number)


_COMPLETE = _event("X", dur=5)


def test_valid_trace_has_no_violations() -> None:
    events = [_COMPLETE, _event("X", 1, dur=4), _event("X", 5, dur=1), _flow("s", 1), _flow("f", 5)]

    assert violations([*events, _event("M") | {"name": "thread_name", "args": {"name": "main"}}]) == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([_event("X", dur=-1)], "negative duration"),
        ([_event("X")], "negative duration"),
        ([_event("i") | {"ts": None}], "no time"),
        ([_COMPLETE, _event("X", 3, dur=5)], "overlap without nesting"),
        ([_COMPLETE, _flow("f")], "flow without a start"),
        ([_COMPLETE, _flow("s")], "flow without an end"),
        ([_COMPLETE, _flow("s"), _flow("f", 9)], "flow outside of any event"),
        ([_event("M") | {"name": "thread_name", "args": {}}], "metadata without a value"),
        ([{**_COMPLETE, "name": ""}], "no name"),
    ],
)
def test_each_violation_is_reported(events: list[JsonEvent], message: str) -> None:
    (found,) = violations(events)

    assert message in found
