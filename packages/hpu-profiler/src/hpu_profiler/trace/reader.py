"""Reader for trace files: Chrome trace JSON, plain or compressed by gzip.

The writer decides how device events look. Up to SynapseAI 1.19 the bridge adds them to the file that torch exported:
processes named "/device:HPU:0", categories Kernel, Memcpy, Memset and Runtime, threads that are engines (MME, TPC, DMA,
NIC) or host logs ("Synapse/..."). Later releases let torch write them, with the categories of other devices (kernel,
gpu_memcpy, gpu_memset) or with the one for custom devices (hpu_op). Sources: the bridge's Python sources of 1.19.0 and
torch's sources. No trace of a card was available.
"""

from __future__ import annotations

import gzip
import io
from typing import IO, TYPE_CHECKING, Any, Final

from hpu_profiler.trace.event_collector import EventCollector
from hpu_profiler.trace.json_stream import JsonError, JsonStream
from hpu_profiler.trace.model import METADATA_KEY, Trace
from hpu_profiler.trace.stages import STAGES
from hpu_profiler.trace.step_window import step_window

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["TraceError", "find_traces", "read_trace"]

#: Size of the largest file that is read as a whole, in bytes. Of a larger one, the first steps are read.
MAX_BYTES: Final = 500_000_000


class TraceError(ValueError):
    """Error for a file that is not a complete trace."""


def read_trace(path: Path) -> Trace:
    """Return the trace in a file; of a file above `MAX_BYTES`, the first steps that fit.

    Args:
        path: File in the Chrome trace format.

    Raises:
        OSError: The file cannot be opened.
        TraceError: The file is not a trace, or it is truncated.
    """
    trace = Trace(path=path)
    try:
        with _open(path) as raw:
            window = step_window(raw, MAX_BYTES)
        collector = EventCollector(window.interval)
        trace.skipped_steps = window.skipped_steps
        with _open(path) as raw, io.TextIOWrapper(raw, encoding="utf-8", errors="replace") as text:
            complete_steps = _read(JsonStream(text), trace, collector)
    except (JsonError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(
            f"{path} is not valid JSON: {error}. The process may have been killed while writing, or the "
            "clock of the machine was set back while it recorded"
        ) from error
    collector.finish(trace)
    # HPUProfiler writes the number of complete steps; the trace also has an annotation of a step that was cut short.
    trace.steps = trace.steps[:complete_steps]
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


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _read(stream: JsonStream, trace: Trace, collector: EventCollector) -> int | None:
    """Add the file's metadata to a trace and its events to a collector; return the number of complete steps."""
    content: dict[str, Any] = {}
    has_events = False
    # The Chrome trace format also allows a list of events, whose closing bracket is optional. Servers append to it.
    if stream.peek() == "[":
        has_events = True
        for event in stream.items(may_be_open=True):
            collector.add(event)
    elif stream.peek() == "{":
        for key in stream.members():
            if key == "traceEvents" and stream.peek() == "[":
                has_events = True
                for event in stream.items():
                    collector.add(event)
            else:
                content[key] = stream.value()
    else:
        stream.value()
    if not has_events:
        raise TraceError(f"{trace.path} is not a trace: it has no list `traceEvents`")
    metadata = content.get(METADATA_KEY) or {}
    _add_metadata(trace, content, metadata)
    complete_steps: int | None = metadata.get("steps")
    return complete_steps


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
