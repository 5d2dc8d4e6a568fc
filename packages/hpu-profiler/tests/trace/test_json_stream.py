"""Incremental JSON, compared with Python's own decoder."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_profiler.trace import json_stream
from hpu_profiler.trace.json_stream import JsonError, JsonStream

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


class _Chunks(io.StringIO):
    """File that returns few characters at a time."""

    def read(self, size: int | None = -1, /) -> str:
        return super().read(min(size or 3, 3))


@given(st.lists(_values), st.sampled_from([None, 2]))
def test_items_equal_those_of_the_whole_text(values: list[Any], indent: int | None) -> None:
    """The end of a chunk may be anywhere in a value."""
    assert list(JsonStream(_Chunks(json.dumps(values, indent=indent))).items()) == values


@given(st.dictionaries(st.text(), _values), st.sampled_from([None, 2]))
def test_members_equal_those_of_the_whole_text(values: dict[str, Any], indent: int | None) -> None:
    stream = JsonStream(_Chunks(json.dumps(values, indent=indent)))

    assert {key: stream.value() for key in stream.members()} == values


@pytest.mark.parametrize("text", ["", "[1, 2", "[1 2]", "[1,", "{", '["a', "[nope]"])
def test_text_that_is_not_a_list_is_an_error(text: str) -> None:
    with pytest.raises(JsonError):
        list(JsonStream(io.StringIO(text)).items())


def test_objects_within_events_do_not_slow_down_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge writes the arguments of an event first; one of them may be an object as well."""
    events = [{"args": {"a": {}}, "name": str(index)} for index in range(100)]
    stream = JsonStream(io.StringIO(json.dumps(events)))
    decoded = 0

    def count(*arguments: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return json.JSONDecoder().raw_decode(*arguments)

    monkeypatch.setattr(stream, "_decode", count)

    assert list(stream.items()) == events
    assert decoded == 1


def test_read_text_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_CHUNK_SIZE", 100)
    stream = JsonStream(io.StringIO(json.dumps([{"name": "event"}] * 1000)))

    assert max(len(stream._buffer) for _ in stream.items()) <= 200
