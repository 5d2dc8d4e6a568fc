"""Parts of a large file."""

import io
import json
import math

import pytest

from hpu_profiler.trace import file_parts as module
from hpu_profiler.trace.file_parts import FilePart, PartReader, file_parts

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def _file(builder: TraceBuilder, steps: int, *, sort_keys: bool = False) -> io.BytesIO:
    """Return a trace whose events of the card follow those of the host, as the bridge writes it."""
    events = [builder.step(index, 10 * index, 10) for index in range(steps)]
    events += [builder.device_event('quote "}, {" in a name', 10 * index + 5, 1, size=7) for index in range(steps)]
    return io.BytesIO(json.dumps({"schemaVersion": 1, "traceEvents": events, "z": {}}, sort_keys=sort_keys).encode())


def test_small_file_is_one_part(builder: TraceBuilder) -> None:
    assert file_parts(_file(builder, 4), 10_000) == [FilePart()]


def test_file_without_steps_is_one_part() -> None:
    assert file_parts(io.BytesIO(b"[" + b" " * 100 + b"]"), 10) == [FilePart()]


@pytest.mark.parametrize("sort_keys", [False, True], ids=["torch", "bridge"])
def test_steps_are_found_in_either_order_of_fields(sort_keys: bool, builder: TraceBuilder) -> None:
    file = _file(builder, 10, sort_keys=sort_keys)

    parts = file_parts(file, len(file.getvalue()) * 4 // 10)

    assert [part.window for part in parts] == [(-math.inf, 40), (40, 80), (80, math.inf)]
    assert [part.first_step for part in parts] == [0, 4, 8]


@pytest.mark.parametrize("chunk_size", [7, 300, 1 << 20])
def test_a_part_has_its_events_and_the_other_members(
    chunk_size: int, builder: TraceBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_SIZE", chunk_size)
    file = _file(builder, 10)
    size = len(file.getvalue())
    seen = []

    for part in file_parts(file, size // 4):
        file.seek(0)
        text = io.BufferedReader(PartReader(file, part.gaps)).read()
        assert len(text) < size or chunk_size == 1 << 20
        content = json.loads(text)
        assert (content["schemaVersion"], content["z"]) == (1, {})
        seen += [e["ts"] for e in content["traceEvents"] if part.window[0] <= e["ts"] < part.window[1]]

    assert sorted(seen) == [time for step in range(10) for time in (10 * step, 10 * step + 5)]


def test_names_of_lanes_are_in_each_part(builder: TraceBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_SIZE", 100)
    steps = [builder.step(index, 10 * index, 10) for index in range(10)]
    file = io.BytesIO(json.dumps([*steps[:5], *builder.track_names(), *steps[5:]]).encode())

    for part in file_parts(file, len(file.getvalue()) // 4):
        file.seek(0)
        events = json.loads(io.BufferedReader(PartReader(file, part.gaps)).read())
        assert sum(event["ph"] == "M" for event in events) == len(builder.track_names())
