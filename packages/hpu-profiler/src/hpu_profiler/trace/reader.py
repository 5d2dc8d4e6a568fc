"""Reader for trace files: Chrome trace JSON, plain or compressed by gzip.

The writer decides how device events look; `lanes` has the rules. Up to SynapseAI 1.19 the bridge adds them to the file
that torch exported. Later releases let torch write them, with the categories of other devices (kernel, gpu_memcpy,
gpu_memset) or with the one for custom devices (hpu_op). Sources: the published bridge 1.19.0 and torch's sources. No
trace of a card was available. A trace that is damaged is read as far as it goes, and has a note on what is wrong.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import io
from typing import IO, TYPE_CHECKING, Any, Final

from hpu_profiler._formatting import format_time
from hpu_profiler.trace.event_collector import EventCollector
from hpu_profiler.trace.json_stream import JsonError, JsonStream
from hpu_profiler.trace.model import CALL_LINES_KEY, METADATA_KEY, Trace
from hpu_profiler.trace.stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_NO_DEVICE: Final = (
    "The trace has no events of the card: it was exported a second time, which leaves them out, or recorded without "
    "HPU activity."
)


class TraceError(ValueError):
    """Error for a file that is not a trace."""


def read_trace(path: Path, progress: Callable[[int], object] | None = None) -> Trace:
    """Return the trace in a file; all of its events are in memory.

    Args:
        path: File in the Chrome trace format.
        progress: Called with the number of bytes that were read, from time to time.

    Raises:
        OSError: The file cannot be opened.
        TraceError: The file is not a trace.
    """
    trace = Trace(path=path)
    collector = EventCollector()
    with paused_gc():
        content = _collect(path, collector, progress, trace)
        metadata = content.get(METADATA_KEY) or {}
        _add_metadata(trace, content, metadata)
        collector.finish(
            trace, base=int(content.get("baseTimeNanoseconds") or 0), call_lines=content.get(CALL_LINES_KEY) or ()
        )
    if "steps" in metadata:
        # HPUProfiler writes the number of complete steps; the trace also has an annotation of a step that was cut.
        trace.steps = trace.steps[: metadata["steps"]]
    _add_notes(trace, expects_device=bool(metadata.get("on_device")) or bool(trace.device_name))
    return trace


def find_traces(paths: Iterable[Path]) -> list[Path]:
    """Return the trace files among files and in directories, sorted by name within each directory.

    Args:
        paths: Files, which are taken as they are, and directories.

    Raises:
        FileNotFoundError: A path does not exist, or a directory contains no trace.
    """
    traces: list[Path] = []
    for path in paths:
        if path.is_dir():
            files = sorted({*path.glob("*.pt.trace.json"), *path.glob("*.pt.trace.json.gz")})
            if not files:
                raise FileNotFoundError(f"no trace (*.pt.trace.json or *.pt.trace.json.gz) in directory {path}")
            traces += files
        elif path.exists():
            traces.append(path)
        else:
            raise FileNotFoundError(f"no such file or directory: {path}")
    return traces


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Do not search for cycles: of the millions of objects of a trace, few are dropped before all are."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def open_trace(path: Path) -> IO[bytes]:
    """Return a trace file, which is decompressed where its name says so."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _collect(
    path: Path, collector: EventCollector, progress: Callable[[int], object] | None, trace: Trace
) -> dict[str, Any]:
    """Pass the events of a file to a collector; return its other members."""
    content: dict[str, Any] = {}
    try:
        with open_trace(path) as raw, io.TextIOWrapper(raw, encoding="utf-8", errors="replace") as text:
            for event in iter_events(JsonStream(text, progress), path, content):
                collector.add(event)
    except (JsonError, EOFError, gzip.BadGzipFile) as error:
        if not collector.events:
            raise TraceError(
                f"{path} is not valid JSON: {error}. The process may have been killed while writing"
            ) from error
        note = f"The file is not valid JSON after {collector.events} events, which were read: {error}. "
        trace.notes += (note + "The process may have been killed while writing.",)
    return content


def iter_events(stream: JsonStream, path: Path, others: dict[str, Any]) -> Iterator[Any]:
    """Yield the events of a file, and add its other members to `others`.

    Raises:
        TraceError: The file has no list of events.
    """
    has_events = False
    # The Chrome trace format also allows a list of events.
    if stream.peek() == "[":
        has_events = True
        yield from stream.items()
    elif stream.peek() == "{":
        for key in stream.members():
            if key == "traceEvents" and stream.peek() == "[":
                has_events = True
                yield from stream.items()
            else:
                others[key] = stream.value()
    else:
        stream.value()
    if not has_events:
        raise TraceError(f"{path} is not a trace: it has no list `traceEvents`")


def _add_notes(trace: Trace, *, expects_device: bool) -> None:
    """Add notes on what the trace lacks, and remove the device's events if their clock is another one."""
    if not trace.device_events:
        if expects_device and not trace.predicted:
            trace.notes += (_NO_DEVICE,)
        return
    start, end = trace.window
    first = min(event.start for event in trace.device_events)
    last = max(event.end for event in trace.device_events)
    if trace.steps and (last <= start or first >= end):
        shift = first - start
        distance = f"{format_time(abs(shift))} {'after' if shift > 0 else 'before'}"
        note = f"The events of the card start {distance} the steps: the clocks of card and host differ."
        trace.notes += (f"{note} They are left out of this report.",)
        trace.device_events = []


def _add_metadata(trace: Trace, content: dict[str, Any], metadata: dict[str, Any]) -> None:
    distributed = content.get("distributedInfo") or {}
    devices = [each for each in content.get("deviceProperties") or [] if isinstance(each, dict)]
    trace.rank = metadata.get("rank", distributed.get("rank"))
    trace.world_size = int(metadata.get("world_size", distributed.get("world_size", 1)))
    trace.host = str(metadata.get("host") or content.get("host_name") or "")
    trace.stage = STAGES.get(str(metadata.get("stage")), "")
    trace.bridge_metrics = metadata.get("bridge_metrics") or {}
    trace.batches = {STAGES.get(name, ""): int(number) for name, number in (metadata.get("batches") or {}).items()}
    trace.libraries = frozenset(metadata.get("libraries") or ())
    trace.sources = metadata.get("sources") or {}
    trace.device_name = str(devices[-1].get("name", "")) if devices else ""
    trace.simulated = any(device.get("simulated") is True for device in devices)
    trace.predicted = any(device.get("predicted") is True for device in devices)
    trace.dropped_events = sum(int(device.get("droppedEvents", 0)) for device in devices)
    trace.has_memory = bool(content.get("profile_memory"))
