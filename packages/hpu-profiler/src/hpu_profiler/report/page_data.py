"""Data of the HTML page: the events as columns of integers, compressed, and the trees as nested lists.

A million events take about 5 MB. The page decompresses them by the browser's own DecompressionStream.
"""

from __future__ import annotations

import base64
import heapq
import itertools
import json
import zlib
from array import array
from typing import TYPE_CHECKING, Any, Final

from hpu_profiler.report.call_tree import flame_tree, module_tree, operator_tree, to_lists
from hpu_profiler.trace.stages import stage_segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_profiler.analysis.job import JobAnalysis
    from hpu_profiler.trace.model import Counter, Span, Trace

__all__ = ["MAX_EVENTS", "page_data"]

#: Number of events in a page. Of a larger job, the longest ones are kept.
MAX_EVENTS: Final = 1_000_000
#: Largest value of a column.
_MAX_INT: Final = 0xFFFFFFFF
_MAX_SAMPLES: Final = 2000
_ENGINES: Final = ("MME", "TPC", "DMA", "NIC")


def page_data(job: JobAnalysis, max_events: int = MAX_EVENTS) -> str:
    """Return the data of the page as JSON that may stand in a script element.

    Args:
        job: Results to render.
        max_events: Number of events to keep.
    """
    names: dict[str, int] = {}
    columns = array("I")
    share = max_events // max(len(job.traces), 1)
    traces = [_trace(trace, names, columns, share) for trace in job.traces]
    trees = [
        {
            "trace": _trace_index(job, part.trace),
            "stage": stage.stage,
            "flame": to_lists(flame_tree(part.trace)),
            "operators": to_lists(operator_tree(part.trace)),
            "modules": to_lists(module_tree(part.trace)),
        }
        for stage in job.stages
        for part in stage.traces
    ]
    content = {
        "names": list(names),
        "traces": traces,
        "trees": trees,
        "stages": [stage.stage for stage in job.stages],
        "columns": base64.b64encode(zlib.compress(_little_endian(columns), 6)).decode(),
    }
    # "</script>" in a name would end the element.
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def _trace_index(job: JobAnalysis, part: Trace) -> int:
    return next(index for index, trace in enumerate(job.traces) if trace.path == part.path)


def _little_endian(columns: array[int]) -> bytes:
    if array("I", [1]).tobytes()[0] != 1:
        columns = array("I", columns)
        columns.byteswap()
    return columns.tobytes()


def _trace(trace: Trace, names: dict[str, int], columns: array[int], max_events: int) -> dict[str, Any]:
    start, end = trace.window
    # Tenths of a microsecond, unless the trace is longer than seven minutes.
    scale = min(10.0, _MAX_INT / max(end - start, 1.0))
    groups = _groups(trace)
    min_duration = _min_duration([span for _, _, spans in groups for span in spans], max_events)
    tracks = []
    for kind, title, spans in groups:
        kept = [span for span in spans if span.duration >= min_duration and span.end > start and span.start < end]
        for depth, row in enumerate(_rows(kept)):
            tracks.append(
                {"kind": kind, "title": title if depth == 0 else "", "offset": len(columns), "count": len(row)}
            )
            _add_columns(row, trace, scale, names, columns)
    return {
        "name": f"rank {trace.rank}" if trace.rank is not None else trace.path.name.partition(".")[0],
        "file": trace.path.name,
        "rank": trace.rank,
        "scale": scale,
        "duration": end - start,
        "segments": [[stage, each[0] - start, each[1] - start] for stage, each in stage_segments(trace)],
        "stage": trace.stage,
        "tracks": tracks,
        "memory": {
            name.removeprefix("memory "): _samples(samples, start)
            for name, samples in trace.counters.items()
            if name.startswith("memory ")
        },
    }


def _groups(trace: Trace) -> list[tuple[str, str, Sequence[Span]]]:
    """Return the spans of each track with the kind and title of the track, in the order of the page."""
    engines: dict[str, list[Span]] = {}
    for event in trace.device_events:
        engines.setdefault(event.track, []).append(event)
    tracks = sorted(engines, key=lambda name: (_ENGINES.index(name) if name in _ENGINES else len(_ENGINES), name))
    threads = dict.fromkeys(operator.thread for operator in trace.operators)
    step_thread = trace.step_thread
    # Frames around the whole trace show nothing.
    frames = [frame for frame in trace.frames if frame.start > trace.window[0] or frame.end < trace.window[1]]
    operators = [("operator", thread, _of_thread(trace.operators, thread)) for thread in threads]
    return [
        ("step", "steps", trace.steps),
        *(("device", name, engines[name]) for name in tracks),
        ("compilation", "compilation", trace.compilations),
        ("annotation", "annotations", _of_thread(trace.spans, step_thread)),
        *((kind, _thread_title(spans, thread, step_thread), spans) for kind, thread, spans in operators),
        ("frame", "stacks", _of_thread(frames, step_thread)),
    ]


def _thread_title(operators: Sequence[Span], thread: int, step_thread: int | None) -> str:
    if thread == step_thread:
        return "operators"
    return "backward" if operators[0].name.startswith("autograd::") else f"thread {thread}"


def _of_thread(spans: Iterable[Any], thread: int | None) -> list[Span]:
    return [span for span in spans if span.thread == thread]


def _min_duration(spans: list[Span], max_events: int) -> float:
    if len(spans) <= max_events:
        return 0.0
    return heapq.nlargest(max_events, (span.duration for span in spans))[-1]


def _rows(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans in rows without overlaps; a nested span is in a later row than the span around it."""
    rows: list[list[Span]] = []
    for span in sorted(spans, key=lambda each: (each.start, -each.end)):
        row = next((row for row in rows if row[-1].end <= span.start), None)
        if row is None:
            rows.append([span])
        else:
            row.append(span)
    return rows


def _add_columns(row: Sequence[Span], trace: Trace, scale: float, names: dict[str, int], columns: array[int]) -> None:
    """Append the starts as differences, the durations, and the indices of the names."""
    origin = trace.window[0]
    starts = [max(round((span.start - origin) * scale), 0) for span in row]
    columns.extend([starts[0], *(b - a for a, b in itertools.pairwise(starts))])
    columns.extend([min(max(round(span.duration * scale), 1), _MAX_INT) for span in row])
    columns.extend([names.setdefault(span.name, len(names)) for span in row])


def _samples(samples: Counter, origin: float) -> list[list[float]]:
    """Return the times and values of a counter; of many samples, the largest one in each slice of time."""
    size = max(len(samples) // _MAX_SAMPLES, 1)
    kept = [max(samples[index : index + size], key=lambda each: each[1]) for index in range(0, len(samples), size)]
    return [[round(time - origin, 1) for time, _ in kept], [value for _, value in kept]]
