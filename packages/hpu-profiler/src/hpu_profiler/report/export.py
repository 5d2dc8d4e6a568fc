"""Export of traces for Perfetto: all ranks on one clock.

Events are copied one by one with all of their arguments, so a file of any size needs little memory. The format is
Chrome's "Trace Event Format", of which Perfetto drops complete events that cross others of their thread.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from statistics import median
from typing import IO, TYPE_CHECKING, Any, Final

from hpu_profiler.trace import lanes
from hpu_profiler.trace.json_stream import JsonError, JsonStream
from hpu_profiler.trace.reader import iter_events, open_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hpu_profiler.analysis.job import JobAnalysis
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis

#: Process ids of a rank begin at its number times this.
_PIDS_PER_RANK: Final = 1000


def clock_offsets(job: JobAnalysis) -> dict[Path, float]:
    """Return what to add to the times of each trace so that all of them are on the clock of the first one.

    A collective ends on all ranks at about the same time. Where the ranks have no step with a collective in common, the
    starts of their first steps are aligned.
    """
    analyses = {each.trace.path: each for stage in reversed(job.stages) for each in stage.traces}
    if not analyses:
        return {}
    first = analyses[job.traces[0].path]
    return {path: _offset(first, each) for path, each in analyses.items()}


def _offset(reference: TraceAnalysis, other: TraceAnalysis) -> float:
    ends = {step.name: step.collectives_end for step in other.step_stats}
    pairs = [(step.collectives_end, ends.get(step.name)) for step in reference.step_stats]
    differences = [one - two for one, two in pairs if one is not None and two is not None]
    if differences:
        return median(differences)
    return reference.start - other.start


def write_perfetto(path: Path, traces: Sequence[tuple[Path, int | None]], offsets: Mapping[Path, float]) -> None:
    """Write the events of all traces as one file that Perfetto and Chrome load.

    Args:
        path: File to write; compressed if its name ends with ".gz".
        traces: Trace files with their ranks.
        offsets: Result of `clock_offsets`.

    Raises:
        OSError: The file cannot be written; what was there before is unchanged.
        ValueError: The file is one of the traces.
    """
    if path.resolve() in {source.resolve() for source, _ in traces}:
        raise ValueError(f"the output must be another file than the traces, got {str(path)!r}")
    with _replacing(path) as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[')
        separator = ""
        for index, (source, rank) in enumerate(traces):
            prefix = f"rank {rank}" if rank is not None else source.name.split(".")[0]
            for event in _nested(_moved(_events(source), index, prefix, offsets.get(source, 0.0))):
                file.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        file.write("]}\n")


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[str]]:
    """Yield a file that becomes `path` when the block ends, and is removed if it fails."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with (
            gzip.open(partial, "wt", encoding="utf-8", compresslevel=1)
            if path.suffix == ".gz"
            else partial.open("w", encoding="utf-8")
        ) as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a file; those before its end if it was cut, which a note of the analysis says."""
    with (
        contextlib.suppress(JsonError, EOFError, gzip.BadGzipFile),
        open_trace(path) as raw,
        io.TextIOWrapper(raw, encoding="utf-8", errors="replace") as text,
    ):
        yield from iter_events(JsonStream(text), path, {})


def _moved(events: Iterable[dict[str, Any]], index: int, prefix: str, offset: float) -> Iterator[dict[str, Any]]:
    """Yield the events with processes and flows of their own, on the common clock; memory also as counters."""
    pids: dict[Any, int] = {}
    named: set[Any] = set()
    for event in events:
        pid = event.get("pid", 0)
        event["pid"] = pids.setdefault(pid, index * _PIDS_PER_RANK + len(pids) + 1)
        if "ts" in event:
            event["ts"] += offset
        if event.get("dur", 0) < 0:
            event["dur"] = 0
        if "id" in event:
            event["id"] = f"{index}:{event['id']}"
        if event.get("ph") == "M" and event.get("name") == "process_name":
            named.add(pid)
            event["args"] = {"name": f"{prefix}: {event.get('args', {}).get('name', '')}"}
        elif event.get("ph") == "M" and event.get("name") == "process_sort_index":
            continue
        yield event
        arguments = event.get("args") or {}
        if event.get("name") == "[memory]" and "Total Allocated" in arguments:
            # The bridge gives the card the number of CUDA.
            device = "host" if arguments.get("Device Type", 0) == 0 else f"card {arguments.get('Device Id', 0)}"
            place = {"pid": event["pid"], "tid": event.get("tid", 0), "ts": event["ts"]}
            value = {"bytes": arguments["Total Allocated"]}
            yield {"ph": "C", "name": f"allocated memory, {device}", **place, "args": value}
    for pid, number in pids.items():
        metadata = {"ph": "M", "pid": number, "tid": 0}
        if pid not in named:
            yield {**metadata, "name": "process_name", "args": {"name": f"{prefix}: process {pid}"}}
        yield {**metadata, "name": "process_sort_index", "args": {"sort_index": number}}


def _nested(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the events, those in SynapseAI's lanes of the host last and with starts with which they nest."""
    lane_calls: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for event in events:
        lane = event.get("pid"), event.get("tid", 0)
        if event.get("name") == "thread_name" and event.get("args", {}).get("name", "").startswith(lanes.HOST_LANE):
            lane_calls[lane] = []
        if event.get("ph") == "X" and lane in lane_calls:
            lane_calls[lane].append(event)
        else:
            yield event
    for calls in lane_calls.values():
        intervals = [(call["ts"], call["ts"] + call["dur"]) for call in calls]
        for call, start, (_, end) in zip(calls, lanes.nested_starts(intervals), intervals, strict=True):
            call["ts"], call["dur"] = start, end - start
        yield from calls
