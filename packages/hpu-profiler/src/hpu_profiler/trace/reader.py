"""Reader for trace files: Chrome trace JSON, plain or compressed by gzip.

The writer decides how device events look. Up to SynapseAI 1.19 the bridge adds them to the file that torch exported:
processes named "/device:HPU:0", categories Kernel, Memcpy, Memset and Runtime, threads that are engines (MME, TPC, DMA,
NIC) or host logs ("Synapse/..."). Later releases let torch write them, with the categories of other devices (kernel,
gpu_memcpy, gpu_memset) or with the one for custom devices (hpu_op). Sources: the bridge's Python sources of 1.19.0 and
torch's sources. No trace of a card was available.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any, Final

from hpu_profiler.trace.call_stack import group_by_thread, innermost_operators, set_self_times
from hpu_profiler.trace.correlation import external_id, set_operators
from hpu_profiler.trace.model import METADATA_KEY, DeviceEvent, HostSpan, Operator, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hpu_profiler.trace.model import DeviceEventKind

__all__ = ["TraceError", "find_traces", "read_trace"]

_JsonEvent = dict[str, Any]

_DEVICE_PROCESS: Final = "/device:HPU:"
_LOG_TRACK: Final = "Synapse/"
_DEVICE_CATEGORIES: Final[dict[str, DeviceEventKind]] = {
    "kernel": "kernel",
    "hpu_op": "kernel",
    "memcpy": "memcpy",
    "gpu_memcpy": "memcpy",
    "memset": "memset",
    "gpu_memset": "memset",
}
_OPERATOR_CATEGORIES: Final = frozenset({"cpu_op", "operator"})
# Some torch releases write annotations with the category of operators.
_ANNOTATION_RE: Final = re.compile(r"^(\[pl\]|ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.|## )")
_STEP_RE: Final = re.compile(r"^ProfilerStep#\d+$")
_COLLECTIVE_RE: Final = re.compile(
    r"hccl|nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast(_|$)", re.IGNORECASE
)
_COMPILATION_RE: Final = re.compile(r"compil", re.IGNORECASE)


class TraceError(ValueError):
    """Error for a file that is not a complete trace."""


def read_trace(path: Path) -> Trace:
    """Return the trace in a file.

    Args:
        path: File in the Chrome trace format.

    Raises:
        OSError: The file cannot be opened.
        TraceError: The file is not a trace, or it is truncated.
    """
    content = _load(path)
    events = [event for event in content["traceEvents"] if isinstance(event, dict)]
    trace = Trace(path=path)
    _add_metadata(trace, content)
    device_events = _add_events(trace, events)
    # HPUProfiler writes the number of complete steps; the trace also has an annotation of a step that was cut short.
    trace.steps = trace.steps[: (content.get(METADATA_KEY) or {}).get("steps")]
    _add_allocations(trace, events)
    set_operators(device_events, trace.operators, events)
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


def _load(path: Path) -> dict[str, Any]:
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rt", encoding="utf-8", errors="replace") as file:
            content = json.load(file)
    except (json.JSONDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(
            f"{path} is not valid JSON: {error}. The process may have been killed while writing"
        ) from error
    if isinstance(content, list):
        # The Chrome trace format also allows a list of events.
        content = {"traceEvents": content}
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise TraceError(f"{path} is not a trace: it has no list `traceEvents`")
    return content


def _add_metadata(trace: Trace, content: dict[str, Any]) -> None:
    metadata = content.get(METADATA_KEY) or {}
    distributed = content.get("distributedInfo") or {}
    devices = [each for each in content.get("deviceProperties") or [] if isinstance(each, dict)]
    trace.rank = metadata.get("rank", distributed.get("rank"))
    trace.world_size = int(metadata.get("world_size", distributed.get("world_size", 1)))
    trace.host = str(metadata.get("host") or content.get("host_name") or "")
    trace.stage = str(metadata.get("stage", ""))
    trace.bridge_metrics = metadata.get("bridge_metrics") or {}
    trace.device_name = str(devices[-1].get("name", "")) if devices else ""
    trace.simulated = any(device.get("simulated") is True for device in devices)
    trace.dropped_events = sum(int(device.get("droppedEvents", 0)) for device in devices)
    trace.has_memory = bool(content.get("profile_memory"))


def _add_events(trace: Trace, events: list[_JsonEvent]) -> list[tuple[DeviceEvent, _JsonEvent]]:
    """Add the complete events to a trace; return its device events with their JSON events."""
    processes = {e["pid"]: str(e["args"].get("name", "")) for e in events if e.get("name") == "process_name"}
    tracks = {(e["pid"], e["tid"]): str(e["args"].get("name", "")) for e in events if e.get("name") == "thread_name"}
    device_events = []
    for event in events:
        if event.get("ph") != "X":
            continue
        category = str(event.get("cat", "")).lower()
        track = tracks.get((event["pid"], event["tid"]), f"stream {event['tid']}")
        on_device = processes.get(event["pid"], "").startswith(_DEVICE_PROCESS)
        if category in _DEVICE_CATEGORIES and not track.startswith(_LOG_TRACK):
            device_events.append((_device_event(event, _DEVICE_CATEGORIES[category], track), event))
        elif category in _OPERATOR_CATEGORIES and not on_device and not _ANNOTATION_RE.match(event["name"]):
            trace.operators.append(_operator(event))
        elif category != "python_function":
            _add_host_span(trace, _host_span(event))
    for span in _logged_calls(events):
        _add_host_span(trace, span)
    trace.device_events = [event for event, _ in device_events]
    for spans in (trace.operators, trace.device_events, trace.steps, trace.spans, trace.compilations):
        spans.sort(key=lambda span: span.start)
    for operators in group_by_thread(trace.operators).values():
        set_self_times(operators)
    return device_events


def _add_host_span(trace: Trace, span: HostSpan) -> None:
    if _STEP_RE.match(span.name):
        trace.steps.append(span)
    elif _COMPILATION_RE.search(span.name):
        trace.compilations.append(span)
    else:
        trace.spans.append(span)


def _host_span(event: _JsonEvent) -> HostSpan:
    start = float(event["ts"])
    return HostSpan(str(event.get("name", "")), start, start + float(event.get("dur", 0)), event["tid"])


def _operator(event: _JsonEvent) -> Operator:
    arguments = event.get("args") or {}
    span = _host_span(event)
    shapes = arguments.get("Input Dims", arguments.get("Input dims", ""))
    return Operator(
        span.name,
        span.start,
        span.end,
        span.thread,
        external_id=external_id(arguments),
        shapes=str(shapes) if shapes else "",
    )


def _device_event(event: _JsonEvent, kind: DeviceEventKind, track: str) -> DeviceEvent:
    arguments = event.get("args") or {}
    name = str(event["name"])
    start = float(event["ts"])
    if kind == "kernel" and (track.startswith("NIC") or _COLLECTIVE_RE.search(name)):
        kind = "collective"
    size = arguments.get("bytes", arguments.get("Bytes", 0))
    return DeviceEvent(name, start, start + float(event.get("dur", 0)), kind, track, int(size or 0))


def _logged_calls(events: list[_JsonEvent]) -> list[HostSpan]:
    """Return the calls that the bridge logs as pairs of begin and end events."""
    stacks: dict[tuple[Any, Any], list[_JsonEvent]] = {}
    spans = []
    for event in sorted((e for e in events if e.get("ph") in {"B", "E"}), key=lambda e: float(e["ts"])):
        stack = stacks.setdefault((event["pid"], event["tid"]), [])
        if event["ph"] == "B":
            stack.append(event)
        elif stack:
            begin = stack.pop()
            spans.append(HostSpan(str(begin.get("name", "")), float(begin["ts"]), float(event["ts"]), event["tid"]))
    return spans


def _add_allocations(trace: Trace, events: list[_JsonEvent]) -> None:
    """Add each allocation and each free to the operator that was running."""
    allocations: dict[int, list[tuple[float, int]]] = {}
    for event in events:
        if event.get("name") == "[memory]" and "Bytes" in (event.get("args") or {}):
            allocations.setdefault(event["tid"], []).append((float(event["ts"]), int(event["args"]["Bytes"])))
    trace.has_memory = trace.has_memory or bool(allocations)
    threads = group_by_thread(trace.operators)
    for thread, sizes in allocations.items():
        sizes.sort()
        operators = innermost_operators(threads.get(thread, []), (time for time, _ in sizes))
        for operator, (_, size) in zip(operators, sizes, strict=True):
            if operator is not None:
                operator.self_memory += size
