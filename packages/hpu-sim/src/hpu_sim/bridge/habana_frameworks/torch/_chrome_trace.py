"""Events of the device for an exported Chrome trace: its tracks, its work, and the host operators that launched it.

The times are those of the simulated device, which works on the host: they do not tell how long a card would take. What
releases after 1.19 write is not published; they are assumed to write what torch does for other devices.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.torch._chrome_trace_until_1_19 import TraceWriter
from habana_frameworks.torch._trace_event import DEVICE_NAME, DeviceEvent, RowAllocator, TraceEvent
from hpu_sim.device.features import features

if TYPE_CHECKING:
    from collections.abc import Iterable

# The process ids of the host are those of the system, which start at 1.
DEVICE_PID: Final = 0

_ENGINES: Final = ("MME", "TPC", "DMA", "NIC", "Synapse/compiler")
_MME, _TPC, _DMA, _NIC, _COMPILER = range(len(_ENGINES))
# The matrix engine (MME) runs products and convolutions; the vector engines (TPC) run the rest.
_MATRIX_OPERATORS: Final = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "conv", "attention", "lstm")
_COPIES: Final = {"h2d": "Memcpy HtoD", "d2h": "Memcpy DtoH", "d2d": "Memcpy DtoD"}

_NS_PER_US: Final = 1000  # a trace is in microseconds
_TOLERANCE_US: Final = 20.0  # largest difference between torch's clock and the device's on a busy machine


def device_trace_events(device_events: Iterable[DeviceEvent], trace: dict[str, Any]) -> list[TraceEvent]:
    """Return the trace events of a device's work.

    Args:
        device_events: Events of :meth:`hpu_sim.device.native.Native.stop_device_trace`.
        trace: Trace exported by torch, whose operators are linked to the work.

    Returns:
        The names of the tracks, and for each device event one event in a track. After 1.19, if an operator launched the
        work, also a launch event within the operator and a flow from there to the work.
    """
    # A newer torch exports times relative to this base.
    base = int(trace.get("baseTimeNanoseconds", 0))
    # Outer events before the events within them.
    ordered = sorted(device_events, key=lambda event: (event[2], -event[3]))
    if not features().after_1_19:
        by_the_bridge: list[TraceEvent] = TraceWriter(base, _is_matrix_operator).write(ordered)
        return by_the_bridge
    launchers = _find_launchers(ordered, trace["traceEvents"], base)
    events: list[TraceEvent] = []
    rows = RowAllocator()
    count = len(_ENGINES)
    for correlation, (device_event, launcher) in enumerate(zip(ordered, launchers, strict=True), start=1):
        event = _work_event(device_event, correlation, base)
        event["tid"] += len(_ENGINES) * rows.allocate(event["tid"], device_event[2], device_event[3])
        count = max(count, event["tid"] + 1)
        if launcher is not None:
            event["args"]["External id"] = launcher["args"].get("External id", 0)
            events += _flow_events(event, launcher, correlation)
        events.append(event)
    return _metadata_events(count) + events


def _metadata_events(tracks: int) -> list[TraceEvent]:
    metadata: list[tuple[str, int, dict[str, Any]]] = [
        ("process_name", 0, {"name": DEVICE_NAME}),
        ("process_labels", 0, {"labels": "simulated: measured on this machine's CPU"}),
        ("process_sort_index", 0, {"sort_index": DEVICE_PID}),
    ]
    for track in range(tracks):
        row, engine = divmod(track, len(_ENGINES))
        name = f"{_ENGINES[engine]} {row + 1}" if row else _ENGINES[engine]
        metadata += [("thread_name", track, {"name": name}), ("thread_sort_index", track, {"sort_index": engine})]
    return [
        {"ph": "M", "name": name, "pid": DEVICE_PID, "tid": tid, "ts": 0, "args": args} for name, tid, args in metadata
    ]


def _work_event(device_event: DeviceEvent, correlation: int, base: int) -> TraceEvent:
    kind, name, start, end, _, size = device_event
    args: dict[str, Any] = {"device": 0, "stream": 0, "correlation": correlation}
    if size:
        args["bytes"] = size
    return {
        "ph": "X",
        "cat": _category(kind),
        "name": f"hccl:{name}" if kind == "collective" else _COPIES.get(kind, name),
        "pid": DEVICE_PID,
        "tid": _engine(kind, name),
        "ts": (start - base) / _NS_PER_US,
        "dur": (end - start) / _NS_PER_US,
        "args": args,
    }


def _category(kind: str) -> str:
    if kind == "compilation":
        return "Runtime"
    if kind in _COPIES:
        return "gpu_memcpy"
    return "kernel"


def _engine(kind: str, name: str) -> int:
    if kind == "kernel":
        return _MME if _is_matrix_operator(name) else _TPC
    return {"collective": _NIC, "compilation": _COMPILER}.get(kind, _DMA)


def _is_matrix_operator(name: str) -> bool:
    return any(part in name.rpartition("::")[2] for part in _MATRIX_OPERATORS)


def _flow_events(event: TraceEvent, launcher: TraceEvent, correlation: int) -> list[TraceEvent]:
    start = {"pid": launcher["pid"], "tid": launcher["tid"], "ts": event["ts"]}
    args = {"External id": event["args"]["External id"], "correlation": correlation}
    flow = {"id": correlation, "cat": "ac2g", "name": "ac2g"}
    return [
        {"ph": "X", "cat": "Runtime", "name": "launch", **start, "dur": 0, "args": args},
        {"ph": "s", **flow, **start},
        {"ph": "f", "bp": "e", **flow, "pid": event["pid"], "tid": event["tid"], "ts": event["ts"]},
    ]


class _ThreadOperators:
    """Operators of one host thread, queried for the launcher of each device event in order of time.

    Args:
        events: Trace events of the operators, in any order.
    """

    def __init__(self, events: Iterable[TraceEvent]) -> None:
        # Longest first among those that start together: the outer one.
        ordered = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
        self._by_name: dict[str, list[TraceEvent]] = {}
        for event in ordered:
            self._by_name.setdefault(event["name"], []).append(event)
        self._pending = ordered[::-1]
        self._stack: list[TraceEvent] = []

    def find_launcher(self, name: str, start: float, end: float) -> TraceEvent | None:
        """Return the operator of a kernel's name that overlaps it, or else the innermost operator at its start.

        Two clocks measure them: a kernel may seem to start before its operator, or after an operator that it calls.
        Old torch also rounds to whole microseconds.

        Args:
            name: Name of the kernel.
            start: Start in microseconds of the trace's clock.
            end: End in microseconds of the trace's clock.
        """
        candidates = self._by_name.get(name, [])
        position = bisect.bisect(candidates, start, key=lambda event: event["ts"])
        neighbors = candidates[max(position - 1, 0) : position + 1]

        def overlap(event: TraceEvent) -> float:
            return float(min(end, event["ts"] + event["dur"]) - max(start, event["ts"]))

        nearest = max(neighbors, key=overlap, default=None)
        return nearest if nearest is not None and overlap(nearest) > -_TOLERANCE_US else self._innermost_at(start)

    def _innermost_at(self, time: float) -> TraceEvent | None:
        while self._pending and self._pending[-1]["ts"] <= time:
            self._stack.append(self._pending.pop())
        self._stack = [event for event in self._stack if event["ts"] + event["dur"] >= time]
        return self._stack[-1] if self._stack else None


def _find_launchers(
    device_events: Iterable[DeviceEvent], events: Iterable[TraceEvent], base: int
) -> list[TraceEvent | None]:
    """Return the operator that launched each device event, on its launching thread; the events must be in order."""
    by_thread: dict[int, list[TraceEvent]] = {}
    for event in events:
        if event.get("cat") == "cpu_op" and event.get("ph") == "X":
            by_thread.setdefault(event["tid"], []).append(event)
    operators = {thread: _ThreadOperators(thread_events) for thread, thread_events in by_thread.items()}
    return [
        operators[thread].find_launcher(name, (start - base) / _NS_PER_US, (end - base) / _NS_PER_US)
        if thread in operators
        else None
        for _, name, start, end, thread, _ in device_events
    ]
