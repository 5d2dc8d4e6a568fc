"""Data of the HTML page."""

import base64
import json
import zlib
from array import array
from collections.abc import Callable
from typing import Any

from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.report.page_data import page_data
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def _tracks(job: JobAnalysis, max_events: int = 1000) -> dict[str, list[tuple[str, float, float]]]:
    """Return the name, start and duration of each event of the first trace by track, as the page decodes them."""
    data: dict[str, Any] = json.loads(page_data(job, max_events))
    columns = array("I", zlib.decompress(base64.b64decode(data["columns"])))
    trace = data["traces"][0]
    found: dict[str, list[tuple[str, float, float]]] = {}
    title = ""
    for track in trace["tracks"]:
        title = track["title"] or title
        offset, count, start = track["offset"], track["count"], 0
        for index in range(offset, offset + count):
            start += columns[index]
            duration = columns[index + count] / trace["scale"]
            name = data["names"][columns[index + 2 * count]]
            found.setdefault(title, []).append((name, start / trace["scale"], duration))
    return found


def test_events_are_columns_of_their_track(fast_rank: Trace) -> None:
    """Times start with the first step."""
    tracks = _tracks(analyze_job([fast_rank]))

    assert list(tracks) == ["steps", "MME", "DMA", "NIC", "annotations", "operators"]
    assert tracks["steps"] == [("ProfilerStep#0", 0, 100), ("ProfilerStep#1", 100, 100)]
    assert tracks["NIC"] == [("hccl:allreduce", 20, 70), ("hccl:allreduce", 120, 70)]


def test_nested_events_have_a_row_of_their_own(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(
        builder.step(0, 0, 100),
        builder.operator("outer", 0, 20),
        builder.operator("inner", 5, 5),
        builder.operator("next", 20, 5),
    )

    data = json.loads(page_data(analyze_job([trace])))

    rows = [track["count"] for track in data["traces"][0]["tracks"] if track["kind"] == "operator"]
    assert rows == [2, 1]


def test_longest_events_of_a_large_job_are_kept(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(
        builder.step(0, 0, 1000), *(builder.operator("mm", 50 * index, index + 1) for index in range(20))
    )

    tracks = _tracks(analyze_job([trace]), max_events=5)

    assert [duration for _, _, duration in tracks["operators"]] == [17, 18, 19, 20]


def test_times_of_a_long_trace_fit_into_the_columns(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    hour = 3.6e9
    trace = make_trace(builder.step(0, 0, hour), builder.operator("last", hour - 1000, 1000))

    ((name, start, duration),) = _tracks(analyze_job([trace]))["operators"]

    assert name == "last"
    assert abs(start - (hour - 1000)) < 10
    assert abs(duration - 1000) < 10


def test_script_element_cannot_be_ended(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    data = page_data(analyze_job([make_trace(builder.step(0, 0, 9), builder.operator("</script>", 1, 2))]))

    assert "<" not in data
    assert "</script>" in json.loads(data)["names"]


def test_memory_keeps_its_peak(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    """Of very many samples, the largest one in each slice of time is kept."""
    allocations = [builder.allocation(index, 1, total=999 if index == 4321 else 5) for index in range(10_000)]
    trace = make_trace(builder.step(0, 0, 10_000), *allocations)

    times, values = json.loads(page_data(analyze_job([trace])))["traces"][0]["memory"]["HPU 0"]

    assert len(values) <= 2500
    assert times[values.index(999)] == 4321
