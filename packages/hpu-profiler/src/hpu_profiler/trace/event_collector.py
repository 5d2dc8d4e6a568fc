"""Collector that turns JSON events into the data model one by one, as they are read."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

from hpu_profiler.trace.call_stack import group_by_thread, innermost_spans, set_self_times
from hpu_profiler.trace.correlation import Correlation, external_id
from hpu_profiler.trace.model import DeviceEvent, HostSpan, Operator

if TYPE_CHECKING:
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Counter, DeviceEventKind, Trace

__all__ = ["EventCollector"]

_JsonEvent = dict[str, Any]
# Process id and thread id of an event.
_Track = tuple[Any, Any]

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
# Copies of host annotations and waits on the device's tracks, and Kineto's own work.
_IGNORED_CATEGORIES: Final = frozenset({"cuda_event", "cuda_sync", "gpu_user_annotation", "overhead", "trace"})
# Some torch releases write annotations with the category of operators.
_ANNOTATION_RE: Final = re.compile(r"^(\[pl\]|ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.|## )")
_STEP_RE: Final = re.compile(r"^ProfilerStep#\d+$")
_COLLECTIVE_RE: Final = re.compile(
    r"hccl|nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast(_|$)", re.IGNORECASE
)
_COMPILATION_RE: Final = re.compile(r"compil", re.IGNORECASE)
_SYNC_RE: Final = re.compile(r"synchroni[sz]e|wait", re.IGNORECASE)
#: Shortest Python call that is kept, in microseconds. The time of shorter ones belongs to their callers.
_MIN_FRAME: Final = 5.0
#: Names of torch's device types, by number.
_DEVICE_TYPES: Final = {0: "CPU", 1: "CUDA", 15: "HPU", 20: "device"}


class EventCollector:
    """Collector of the events of one trace.

    Args:
        window: Time range of the events to keep.
    """

    def __init__(self, window: Interval) -> None:
        self._window = window
        self._processes: dict[Any, str] = {}
        self._threads: dict[_Track, str] = {}
        self._device_events: list[tuple[DeviceEvent, _Track]] = []
        self._operators: dict[Any, list[Operator]] = {}
        self._steps: list[HostSpan] = []
        self._spans: list[HostSpan] = []
        self._uncategorized: list[HostSpan] = []
        self._frames: list[HostSpan] = []
        self._compilations: list[HostSpan] = []
        self._begins: list[_JsonEvent] = []
        self._allocations: dict[int, list[tuple[float, int]]] = {}
        self._counters: dict[str, Counter] = {}
        self._correlation = Correlation()

    def add(self, event: Any) -> None:
        """Add an event.

        Args:
            event: JSON value; anything but an event is ignored.
        """
        if not isinstance(event, dict):
            return
        phase = event.get("ph")
        if phase == "M":
            self._add_name(event)
        elif phase is not None and self._is_in_window(event):
            if phase == "X":
                self._add_complete(event)
            elif phase in {"B", "E"}:
                self._begins.append(event)
            elif phase in {"s", "f"}:
                self._correlation.add_flow(event)
            elif phase == "C":
                self._add_counter(event)
            elif event.get("name") == "[memory]":
                self._add_allocation(event)

    def finish(self, trace: Trace) -> None:
        """Add the collected events to a trace, ordered and linked to each other.

        Args:
            trace: Trace to add to.
        """
        device_processes = {pid for pid, name in self._processes.items() if name.startswith(_DEVICE_PROCESS)}
        for pid, operators in self._operators.items():
            if pid in device_processes:
                self._spans += operators
            else:
                trace.operators += operators
        for event, track in self._device_events:
            event.track = sys.intern(self._threads.get(track, f"stream {track[1]}").strip())
            if event.track.startswith(_LOG_TRACK):
                self._add_host_span(HostSpan(event.name, event.start, event.end, track[1]))
            else:
                if event.track.startswith("NIC") and event.kind == "kernel":
                    event.kind = "collective"
                trace.device_events.append(event)
        for span in _logged_calls(self._begins):
            self._add_host_span(span)
        trace.steps, trace.spans = self._steps, self._spans
        if not (trace.steps or trace.operators or trace.device_events):
            # The events that a server writes itself.
            own = {id(span) for span in self._uncategorized}
            trace.operators = [
                Operator(each.name, each.start, each.end, each.thread, 0) for each in self._uncategorized
            ]
            trace.spans = [span for span in trace.spans if id(span) not in own]
        trace.frames, trace.compilations = self._frames, self._compilations
        trace.counters = {name: sorted(samples) for name, samples in self._counters.items()}
        for spans in (trace.operators, trace.device_events, trace.steps, trace.spans, trace.compilations):
            spans.sort(key=lambda span: span.start)
        trace.frames.sort(key=lambda span: (span.start, -span.end))
        for operators in group_by_thread(trace.operators).values():
            set_self_times(operators)
        self._set_memory(trace)
        self._correlation.link(trace.operators)

    def _is_in_window(self, event: _JsonEvent) -> bool:
        return self._window[0] <= float(event.get("ts") or 0) < self._window[1]

    def _add_name(self, event: _JsonEvent) -> None:
        name = str((event.get("args") or {}).get("name", ""))
        if event.get("name") == "process_name":
            self._processes[event.get("pid")] = name
        elif event.get("name") == "thread_name":
            self._threads[_track(event)] = name

    def _add_complete(self, event: _JsonEvent) -> None:
        category = str(event.get("cat", "")).lower()
        name = str(event.get("name", ""))
        if category == "python_function":
            if float(event.get("dur", 0)) >= _MIN_FRAME and not name.startswith("<built-in"):
                self._frames.append(_host_span(event))
        elif category in _DEVICE_CATEGORIES:
            device_event = _device_event(event, _DEVICE_CATEGORIES[category])
            self._device_events.append((device_event, _track(event)))
            self._correlation.add_device_event(device_event, event)
        elif category in _OPERATOR_CATEGORIES and not _ANNOTATION_RE.match(name):
            self._operators.setdefault(event.get("pid"), []).append(_operator(event))
        elif category not in _IGNORED_CATEGORIES:
            is_launch = self._correlation.add_launch(event)
            if not is_launch or _COMPILATION_RE.search(name) or _SYNC_RE.search(name):
                span = _host_span(event)
                self._add_host_span(span)
                if not category:
                    self._uncategorized.append(span)

    def _add_host_span(self, span: HostSpan) -> None:
        if _STEP_RE.match(span.name):
            self._steps.append(span)
        elif _COMPILATION_RE.search(span.name):
            self._compilations.append(span)
        else:
            self._spans.append(span)

    def _add_counter(self, event: _JsonEvent) -> None:
        values = {key: value for key, value in (event.get("args") or {}).items() if isinstance(value, int | float)}
        for key, value in values.items():
            name = event["name"] if len(values) == 1 else f"{event['name']}: {key}"
            self._counters.setdefault(name, []).append((float(event["ts"]), float(value)))

    def _add_allocation(self, event: _JsonEvent) -> None:
        arguments = event.get("args") or {}
        if "Bytes" not in arguments:
            return
        time = float(event["ts"])
        self._allocations.setdefault(event.get("tid", 0), []).append((time, int(arguments["Bytes"])))
        if "Total Allocated" in arguments:
            number = int(arguments.get("Device Id", -1))
            device = _DEVICE_TYPES.get(int(arguments.get("Device Type", 0)), "device")
            name = f"memory {device} {number}" if number >= 0 else f"memory {device}"
            self._counters.setdefault(name, []).append((time, float(arguments["Total Allocated"])))

    def _set_memory(self, trace: Trace) -> None:
        """Add each allocation and each free to the operator that was running."""
        trace.has_memory = trace.has_memory or bool(self._allocations)
        threads = group_by_thread(trace.operators)
        for thread, sizes in self._allocations.items():
            sizes.sort()
            operators = innermost_spans(threads.get(thread, []), (time for time, _ in sizes))
            for operator, (_, size) in zip(operators, sizes, strict=True):
                if operator is not None:
                    operator.self_memory += size


def _track(event: _JsonEvent) -> _Track:
    return event.get("pid"), event.get("tid", 0)


def _host_span(event: _JsonEvent) -> HostSpan:
    start = float(event["ts"])
    # Names repeat in each step, so one copy of each is kept.
    return HostSpan(
        sys.intern(str(event.get("name", ""))), start, start + float(event.get("dur", 0)), event.get("tid", 0)
    )


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
        shapes=sys.intern(str(shapes)) if shapes else "",
    )


def _device_event(event: _JsonEvent, kind: DeviceEventKind) -> DeviceEvent:
    arguments = event.get("args") or {}
    name = sys.intern(str(event.get("name", "")))
    start = float(event["ts"])
    if kind == "kernel" and _COLLECTIVE_RE.search(name):
        kind = "collective"
    size = arguments.get("bytes", arguments.get("Bytes", 0))
    return DeviceEvent(name, start, start + float(event.get("dur", 0)), kind, "", int(size or 0))


def _logged_calls(events: list[_JsonEvent]) -> list[HostSpan]:
    """Return the calls that the bridge logs as pairs of begin and end events."""
    stacks: dict[_Track, list[_JsonEvent]] = {}
    spans = []
    for event in sorted(events, key=lambda e: float(e["ts"])):
        stack = stacks.setdefault(_track(event), [])
        if event["ph"] == "B":
            stack.append(event)
        elif stack:
            begin = stack.pop()
            spans.append(
                HostSpan(str(begin.get("name", "")), float(begin["ts"]), float(event["ts"]), event.get("tid", 0))
            )
    return spans
