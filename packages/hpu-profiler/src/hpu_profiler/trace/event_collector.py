"""Collector that turns JSON events into the data model one by one, as they are read."""

from __future__ import annotations

import functools
import re
import sys
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from hpu_profiler.trace import lanes
from hpu_profiler.trace.call_stack import call_order, group_by_thread, innermost_spans, set_self_times
from hpu_profiler.trace.correlation import Correlation, external_id
from hpu_profiler.trace.model import DeviceEvent, DeviceEventKind, HostSpan, Operator, SyncCall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_profiler.trace.model import Trace

_JsonEvent = dict[str, Any]
# Process id and thread id of an event.
_Track = tuple[Any, Any]

#: Categories of the device's events, and of the host's logs, by the kind of a device event.
_DEVICE_CATEGORIES: Final[dict[str, DeviceEventKind]] = {
    "kernel": "kernel",
    "hpu_op": "kernel",
    "memcpy": "memcpy",
    "gpu_memcpy": "memcpy",
    "memset": "memset",
    "gpu_memset": "memset",
    "runtime": "other",
}
_OPERATOR_CATEGORIES: Final = frozenset({"cpu_op", "operator"})
# Copies of host annotations and waits on the device's tracks, and Kineto's own work.
_IGNORED_CATEGORIES: Final = frozenset({"cuda_event", "cuda_sync", "gpu_user_annotation", "overhead", "trace"})
# Some torch releases write annotations with the category of operators.
_ANNOTATION_RE: Final = re.compile(r"^(\[pl\]|ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.|## )")
_STEP_RE: Final = re.compile(r"^ProfilerStep#\d+$")
#: What compiles: SynapseAI's call, the bridge's functions, phases of torch.compile, and the log of a simulated card.
_COMPILATION_RE: Final = re.compile(
    r"^synGraphCompile|CompileSynapseGraph|\(dynamo_timed\)$|^(re)?compilation$|^compile_graph$", re.IGNORECASE
)
_SYNC_RE: Final = re.compile(r"synchroni[sz]e|wait", re.IGNORECASE)
#: Scopes of collectives on the host: torch's operators, and the bridge's functions in its log.
_TORCH_SCOPE: Final = "c10d::"
_BRIDGE_SCOPE_RE: Final = re.compile(
    r"^_?(allreduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|reduce|gather|scatter|send|recv)"
    r"(_base|_coalesced|_out|base|_tensor)*$"
)
#: Calls of Python functions that may wait for the device, as torch names their frames.
SYNC_CALL_RE: Final = re.compile(
    r"^<built-in (?:method (?P<method>item|tolist|cpu|to|numpy|nonzero|__bool__|__int__|__float__) of Tensor object"
    r"|function (?P<function>print))"
)
#: Shortest Python call that is kept, in microseconds. The time of shorter ones belongs to their callers.
_MIN_FRAME: Final = 5.0
#: What an event of the host or of the device is, by its category and name.
_Role = Literal["operator", "frame", "annotation", "ignored"] | DeviceEventKind
#: Number of names of which the roles are kept.
_MAX_NAMES: Final = 1 << 16


class EventCollector:
    """Collector of the events of one trace."""

    def __init__(self) -> None:
        self._processes: dict[Any, str] = {}
        self._threads: dict[_Track, str] = {}
        self._device_events: dict[_Track, list[DeviceEvent]] = {}
        self._operators: dict[Any, list[Operator]] = {}
        self._steps: list[HostSpan] = []
        self._spans: list[HostSpan] = []
        self._frames: list[HostSpan] = []
        self._sync_calls: list[SyncCall] = []
        self._compilations: list[HostSpan] = []
        self._begins: list[_JsonEvent] = []
        self._bridge_scopes: list[HostSpan] = []
        self._allocations: dict[_Track, list[tuple[float, int]]] = {}
        self._recipes: dict[int, str] = {}
        self._correlation = Correlation()
        self._shared_threads: dict[int, int] = {}
        self._negative = 0

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
        elif phase == "X":
            self._add_complete(event)
        elif phase in {"B", "E"}:
            self._begins.append(event)
        elif phase in {"s", "f"}:
            self._correlation.add_flow(event)
        elif event.get("name") == "[memory]":
            self._add_allocation(event)

    def finish(self, trace: Trace, *, base: int = 0, call_lines: Iterable[tuple[int, str]] = ()) -> None:
        """Add the collected events to a trace, ordered and linked to each other.

        Args:
            trace: Trace to add to.
            base: Nanoseconds of the system's clock at time 0 of the trace.
            call_lines: Start by the system's clock, and source line, of calls that may wait for the device.
        """
        device_processes = {pid for pid, name in self._processes.items() if name.startswith(lanes.DEVICE_PROCESS)}
        for pid, operators in self._operators.items():
            if pid in device_processes:
                self._spans += operators
            else:
                trace.operators += operators
        for span in self._logged_calls():
            self._add_host_span(span)
        notes = self._add_device_events(trace, device_processes)
        trace.steps, trace.spans = self._steps, self._spans
        trace.frames, trace.compilations, trace.sync_calls = self._frames, self._compilations, self._sync_calls
        trace.recipes = self._recipes
        for spans in (
            trace.operators,
            trace.device_events,
            trace.steps,
            trace.spans,
            trace.compilations,
            trace.sync_calls,
        ):
            spans.sort(key=attrgetter("start"))
        trace.frames.sort(key=call_order)
        for operators in group_by_thread(trace.operators).values():
            set_self_times(operators)
        self._set_memory(trace)
        self._correlation.link(trace.operators, self._device_events)
        _set_locations(trace.sync_calls, base, call_lines)
        if self._negative:
            notes.append(
                f"{self._negative} events have a negative duration, because a clock was set back while the trace was "
                "recorded; they count as 0."
            )
        trace.notes += tuple(notes)

    def _add_name(self, event: _JsonEvent) -> None:
        name = str((event.get("args") or {}).get("name", ""))
        if event.get("name") == "process_name":
            self._processes[event.get("pid")] = name
        elif event.get("name") == "thread_name":
            self._threads[_track(event)] = name.strip()

    def _add_complete(self, event: _JsonEvent) -> None:
        if event.get("dur", 0) < 0:
            self._negative += 1
            event["dur"] = 0
        category = str(event.get("cat", ""))
        role = _role(category, str(event.get("name", "")))
        if role == "operator":
            self._operators.setdefault(event.get("pid"), []).append(self._operator(event))
        elif role == "frame":
            self._add_frame(event)
        elif role == "annotation" or (role == "other" and "correlation" in (event.get("args") or {})):
            self._add_annotation(event)
        elif role != "ignored":
            self._add_device_event(event, role)

    def _add_annotation(self, event: _JsonEvent) -> None:
        """Add an annotation, or a call of the runtime."""
        is_launch = self._correlation.add_launch(event)
        span = self._host_span(event)
        if not is_launch or _explains_idle_time(span.name):
            self._add_host_span(span)

    def _add_frame(self, event: _JsonEvent) -> None:
        name = str(event.get("name", ""))
        if not name.startswith("<built-in"):
            if event.get("dur", 0) >= _MIN_FRAME:
                self._frames.append(self._host_span(event))
        elif call := _sync_call(name):
            span = self._host_span(event)
            self._sync_calls.append(SyncCall(call, span.start, span.end, span.thread))

    def _add_host_span(self, span: HostSpan) -> None:
        if _is_compilation(span.name):
            self._compilations.append(span)
        elif span.name.startswith("ProfilerStep#") and _STEP_RE.match(span.name):
            self._steps.append(span)
        else:
            self._spans.append(span)

    def _add_device_event(self, event: _JsonEvent, kind: DeviceEventKind) -> None:
        """Add an event of the device, or of a log of the host; `finish` knows the names of the lanes."""
        arguments = event.get("args") or {}
        name = sys.intern(str(event.get("name", "")))
        start = float(event["ts"])
        end = start + float(event.get("dur", 0))
        recipe = int(arguments.get("recipeId") or 0)
        if recipe and recipe not in self._recipes:
            self._recipes[recipe] = str(arguments.get("recipeName") or "")
        device_event = DeviceEvent(name, start, end, kind, "", recipe)
        self._device_events.setdefault(_track(event), []).append(device_event)
        self._correlation.add_device_event(device_event, arguments)

    def _add_device_events(self, trace: Trace, device_processes: set[Any]) -> list[str]:
        """Add the device's events by their lanes; return notes about those that could not be understood."""
        unknown = 0
        ports: list[DeviceEvent] = []
        for track, events in self._device_events.items():
            lane = self._threads.get(track, "")
            if lane.startswith(lanes.HOST_LANE) or not self._is_device(track, events, device_processes):
                starts = lanes.nested_starts([event.interval for event in events])
                for event, start in zip(events, starts, strict=True):
                    self._add_host_span(HostSpan(event.name, start, event.end, track[1]))
                continue
            engine = lanes.lane_engine(lane, track[1]) if track[0] in device_processes else "compute"
            if engine in lanes.CONTROL_ENGINES:
                continue
            for event in events:
                event.engine = engine
                event.kind = lanes.event_kind(event.kind, engine, event.name)
                unknown += event.kind == "other"
            from_bridge = engine == "NIC" and not any(each.name.startswith("hccl") for each in events)
            (ports if from_bridge else trace.device_events).extend(events)
        trace.device_events += self._collectives(ports, trace)
        if unknown:
            return [f"{unknown} events of the card are of an unknown engine; they count as busy time only."]
        return []

    def _is_device(self, track: _Track, events: list[DeviceEvent], device_processes: set[Any]) -> bool:
        if track[0] in device_processes:
            return True
        # A trace of another device names its processes otherwise.
        is_other = bool(device_processes) and bool(self._processes.get(track[0]))
        return events[0].kind != "other" and not is_other

    def _collectives(self, ports: list[DeviceEvent], trace: Trace) -> list[DeviceEvent]:
        """Return one event for each time in which network ports worked, named by the host's scope of the collective.

        SynapseAI names the events of each port, and no event of the device says to which collective it belongs. Where
        there are as many scopes as busy times they belong together in order; otherwise the last scope before counts.
        """
        ports.sort(key=lambda event: event.start)
        merged: list[DeviceEvent] = []
        for event in ports:
            if merged and event.start <= merged[-1].end:
                merged[-1].end = max(merged[-1].end, event.end)
            else:
                merged.append(event)
        torch_scopes = [operator for operator in trace.operators if operator.name.startswith(_TORCH_SCOPE)]
        scopes = sorted(
            (span.start, span.name.removeprefix(_TORCH_SCOPE).strip("_"))
            for span in [*torch_scopes, *self._bridge_scopes]
        )
        starts = [start for start, _ in scopes]
        for index, event in enumerate(merged):
            position = index if len(scopes) == len(merged) else bisect_right(starts, event.start) - 1
            if position >= 0 and scopes:
                event.name = scopes[position][1]
        return merged

    def _logged_calls(self) -> list[HostSpan]:
        """Return the calls that the bridge logs as pairs of begin and end events of a thread, which nest."""
        stacks: dict[_Track, list[_JsonEvent]] = {}
        spans: list[HostSpan] = []
        for event in sorted(self._begins, key=lambda e: float(e["ts"])):
            stack = stacks.setdefault(_track(event), [])
            if event["ph"] == "B":
                stack.append(event)
            elif stack:
                begin = stack.pop()
                name = str(begin.get("name", ""))
                spans.append(HostSpan(name, float(begin["ts"]), float(event["ts"]), event.get("tid", 0)))
                process = self._processes.get(event.get("pid"), "")
                if process.startswith(lanes.BRIDGE_LOGS) and _BRIDGE_SCOPE_RE.match(name):
                    self._bridge_scopes.append(spans[-1])
        return spans

    def _add_allocation(self, event: _JsonEvent) -> None:
        arguments = event.get("args") or {}
        if "Bytes" not in arguments:
            return
        time = float(event["ts"])
        self._allocations.setdefault(_track(event), []).append((time, int(arguments["Bytes"])))

    def _set_memory(self, trace: Trace) -> None:
        """Add each allocation and free to the operator that was running."""
        trace.has_memory = trace.has_memory or bool(self._allocations)
        threads = group_by_thread(trace.operators)
        for (pid, thread), sizes in self._allocations.items():
            if self._processes.get(pid, "").startswith(lanes.MEMORY_LOGS):
                # All of them have the number of the thread that exported the trace.
                continue
            sizes.sort()
            operators = innermost_spans(threads.get(thread, []), (time for time, _ in sizes))
            for operator, (_, size) in zip(operators, sizes, strict=True):
                if operator is not None:
                    operator.self_memory += size

    def _host_span(self, event: _JsonEvent) -> HostSpan:
        start = float(event["ts"])
        thread: int = event.get("tid", 0)
        # Names and threads repeat in each step, so one copy of each is kept.
        return HostSpan(
            sys.intern(str(event.get("name", ""))),
            start,
            start + float(event.get("dur", 0)),
            self._shared_threads.setdefault(thread, thread),
        )

    def _operator(self, event: _JsonEvent) -> Operator:
        arguments = event.get("args") or {}
        start = float(event["ts"])
        thread: int = event.get("tid", 0)
        shapes = arguments.get("Input Dims", arguments.get("Input dims", ""))
        return Operator(
            sys.intern(str(event.get("name", ""))),
            start,
            start + float(event.get("dur", 0)),
            self._shared_threads.setdefault(thread, thread),
            external_id(arguments),
            sys.intern(str(shapes)) if shapes else "",
        )


# Names repeat in each step, so each is looked at once.
@functools.lru_cache(maxsize=_MAX_NAMES)
def _role(category: str, name: str) -> _Role:
    category = category.lower()
    if category in _OPERATOR_CATEGORIES:
        return "annotation" if _ANNOTATION_RE.match(name) else "operator"
    if category == "python_function":
        return "frame"
    return "ignored" if category in _IGNORED_CATEGORIES else _DEVICE_CATEGORIES.get(category, "annotation")


@functools.lru_cache(maxsize=_MAX_NAMES)
def _is_compilation(name: str) -> bool:
    return bool(_COMPILATION_RE.search(name))


@functools.lru_cache(maxsize=_MAX_NAMES)
def _explains_idle_time(name: str) -> bool:
    return bool(_COMPILATION_RE.search(name) or _SYNC_RE.search(name))


@functools.lru_cache(maxsize=_MAX_NAMES)
def _sync_call(name: str) -> str:
    """Return the call of a built-in function that may wait for the device, such as ".item()"; empty for others."""
    match = SYNC_CALL_RE.match(name)
    return (match["function"] or f".{match['method']}()") if match else ""


def _track(event: _JsonEvent) -> _Track:
    return event.get("pid"), event.get("tid", 0)


def _set_locations(calls: list[SyncCall], base: int, lines: Iterable[tuple[int, str]]) -> None:
    """Set the source line of each call that starts at the time of a line, by up to a microsecond."""
    at = {round((start - base) / 1000): location for start, location in lines}
    for call in calls:
        time = round(call.start)
        call.location = next((at[each] for each in (time, time - 1, time + 1) if each in at), "")
