"""Reader for trace files: Chrome trace JSON, plain or compressed by gzip.

The writer decides how device events look; `lanes` has the rules. Up to SynapseAI 1.19 the bridge adds them to the file
that torch exported. Later releases let torch write them, with the categories of other devices (kernel, gpu_memcpy,
gpu_memset) or with the one for custom devices (hpu_op). Sources: the published bridge 1.19.0 and torch's sources. No
trace of a card was available.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import json
import re
from typing import TYPE_CHECKING, Any, Final

from hpu_profiler._formatting import format_time
from hpu_profiler.trace.event_collector import EventCollector
from hpu_profiler.trace.model import CALL_LINES_KEY, METADATA_KEY, Trace
from hpu_profiler.trace.stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: Negative duration as Kineto of torch 2.13 writes it, with a sign before the fraction as well.
_SIGNED_FRACTION_RE: Final = re.compile(r"(:\s*-\d+)\.-(\d+)")
_NO_DEVICE: Final = (
    "The trace has no events of the card: it was exported a second time, which leaves them out, or recorded without "
    "HPU activity."
)


class TraceError(ValueError):
    """Error for a file that is not a trace."""


def read_trace(path: Path) -> Trace:
    """Return the trace in a file; all of its events are in memory.

    Args:
        path: File in the Chrome trace format.

    Raises:
        OSError: The file cannot be opened.
        TraceError: The file is not a trace.
    """
    trace = Trace(path=path)
    collector = EventCollector()
    with paused_gc():
        content = _load(path)
        events = content.pop("traceEvents")
        # From the end, so that each event is dropped once it is read.
        events.reverse()
        while events:
            collector.add(events.pop())
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


def _load(path: Path) -> dict[str, Any]:
    """Return the content of a file; an event list without other members is a trace as well."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read().decode("utf-8", "replace")
        content = json.loads(_SIGNED_FRACTION_RE.sub(r"\1.\2", text) if ".-" in text else text)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(
            f"{path} is not valid JSON: {error}. The process may have been killed while writing"
        ) from error
    content = {"traceEvents": content} if isinstance(content, list) else content
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise TraceError(f"{path} is not a trace: it has no list `traceEvents`")
    return content


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
    trace.run = str(metadata.get("run") or "")
    trace.stage = STAGES.get(str(metadata.get("stage")), "")
    trace.bridge_metrics = metadata.get("bridge_metrics") or {}
    trace.libraries = frozenset(metadata.get("libraries") or ())
    trace.sources = metadata.get("sources") or {}
    trace.device_name = str(devices[-1].get("name", "")) if devices else ""
    trace.simulated = any(device.get("simulated") is True for device in devices)
    trace.predicted = any(device.get("predicted") is True for device in devices)
    trace.has_memory = bool(content.get("profile_memory"))
