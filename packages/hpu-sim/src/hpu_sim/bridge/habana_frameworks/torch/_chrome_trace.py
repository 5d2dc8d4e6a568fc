"""The card in an exported trace: its lanes, what it did in them, and which of the host's operators launched that.

The intervals were measured while the simulated card worked, which is the host's work, too: nothing here tells how long
a card would take. Up to 1.19 the bridge wrote its own categories; after that torch writes the card's work itself, and
is taken to use the categories that it uses for other devices.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.features import features

if TYPE_CHECKING:
    from collections.abc import Iterable

LANE: Final = "/device:HPU:0"
# Beside the processes of the host, which are numbered by the system.
LANE_ID: Final = 0

_ENGINES: Final = ("MME", "TPC", "DMA", "NIC", "Synapse/compiler")
_MME, _TPC, _DMA, _NIC, _COMPILER = range(len(_ENGINES))
# The matrix engine multiplies and convolves; the vector engines do the rest.
_MATRIX_OPERATORS: Final = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "conv", "attention", "lstm")
_COPIES: Final = {"h2d": "Memcpy HtoD", "d2h": "Memcpy DtoH", "d2d": "Memcpy DtoD"}

_NANOSECONDS: Final = 1000  # in one of the microseconds in which a trace counts
_TOLERANCE: Final = 20.0  # microseconds by which the clocks of torch and of the device may disagree on a busy machine

Interval = tuple[str, str, int, int, int, int]
Event = dict[str, Any]


def events_of(intervals: Iterable[Interval], trace: dict[str, Any]) -> list[Event]:
    """Return the events of a card's work.

    Args:
        intervals: As :meth:`hpu_sim.native.Native.take_device_trace` gives them.
        trace: What torch exported; its operators are linked to the card's work.

    Returns:
        Names of the lanes; for each interval one event in a lane, and where an operator launched it, a point of launch
        in the operator and the two ends of an arrow from there.
    """
    # Where a trace says so, it counts from a time of its own.
    base = int(trace.get("baseTimeNanoseconds", 0))
    # An outer one before what lies within it.
    ordered = sorted(intervals, key=lambda each: (each[2], -each[3]))
    launchers = _launchers(ordered, trace["traceEvents"], base)
    events: list[Event] = []
    lanes = _Lanes()
    for number, (interval, launcher) in enumerate(zip(ordered, launchers, strict=True), start=1):
        event = _work(interval, number, base)
        event["tid"] = lanes.place(event["tid"], interval[2], interval[3])
        if launcher is not None:
            event["args"]["External id"] = launcher["args"].get("External id", 0)
            events += _link(event, launcher, number)
        events.append(event)
    return _names(lanes.number) + events


class _Lanes:
    """A lane for each engine, and more where it did several things at a time that are not within each other.

    Chrome's format has no place for two of those in one lane, and Perfetto leaves the second out.
    """

    def __init__(self) -> None:
        self._ends: dict[int, list[int]] = {}
        self.number = len(_ENGINES)

    def place(self, engine: int, begin: int, end: int) -> int:
        """Return the lane of what an engine did, which begins no earlier than what came before."""
        lane = engine
        while not self._fits(lane, begin, end):
            lane += len(_ENGINES)
        self._ends[lane].append(end)
        self.number = max(self.number, lane + 1)
        return lane

    def _fits(self, lane: int, begin: int, end: int) -> bool:
        running = self._ends.setdefault(lane, [])
        while running and running[-1] <= begin:
            running.pop()
        return not running or end <= running[-1]


def _names(lanes: int) -> list[Event]:
    described: list[tuple[str, int, dict[str, Any]]] = [
        ("process_name", 0, {"name": LANE}),
        ("process_labels", 0, {"labels": "simulated: measured on this machine's CPU"}),
        ("process_sort_index", 0, {"sort_index": LANE_ID}),
    ]
    for lane in range(lanes):
        row, engine = divmod(lane, len(_ENGINES))
        described.append(("thread_name", lane, {"name": f"{_ENGINES[engine]} {row + 1}" if row else _ENGINES[engine]}))
        described.append(("thread_sort_index", lane, {"sort_index": engine}))
    return [
        {"ph": "M", "name": name, "pid": LANE_ID, "tid": tid, "ts": 0, "args": arguments}
        for name, tid, arguments in described
    ]


def _work(interval: Interval, number: int, base: int) -> Event:
    kind, name, begin, end, _, size = interval
    arguments: dict[str, Any] = {"device": 0, "stream": 0, "correlation": number}
    if size:
        arguments["bytes"] = size
    return {
        "ph": "X",
        "cat": _category(kind),
        "name": f"hccl:{name}" if kind == "collective" else _COPIES.get(kind, name),
        "pid": LANE_ID,
        "tid": _engine(kind, name),
        "ts": (begin - base) / _NANOSECONDS,
        "dur": (end - begin) / _NANOSECONDS,
        "args": arguments,
    }


def _category(kind: str) -> str:
    if kind == "compilation":
        return "Runtime"
    if kind in _COPIES:
        return "gpu_memcpy" if features().after_1_19 else "Memcpy"
    return "kernel" if features().after_1_19 else "Kernel"


def _engine(kind: str, name: str) -> int:
    if kind == "kernel":
        return _MME if any(part in name.rpartition("::")[2] for part in _MATRIX_OPERATORS) else _TPC
    return {"collective": _NIC, "compilation": _COMPILER}.get(kind, _DMA)


def _link(event: Event, launcher: Event, number: int) -> list[Event]:
    place = {"pid": launcher["pid"], "tid": launcher["tid"], "ts": event["ts"]}
    external = event["args"]["External id"]
    arrow = {"id": number, "cat": "ac2g", "name": "ac2g"}
    return [
        {"ph": "X", "cat": "Runtime", "name": "launch", **place, "dur": 0}
        | {"args": {"External id": external, "correlation": number}},
        {"ph": "s", **arrow, **place},
        {"ph": "f", "bp": "e", **arrow, "pid": event["pid"], "tid": event["tid"], "ts": event["ts"]},
    ]


class _Operators:
    """The operators of one thread of the host, asked for who launched what, in order of time.

    Args:
        events: Their events, in any order.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        # Longest first where two begin together: the outer one.
        ordered = sorted(events, key=lambda each: (each["ts"], -each["dur"]))
        self._by_name: dict[str, list[Event]] = {}
        for event in ordered:
            self._by_name.setdefault(event["name"], []).append(event)
        self._ahead = ordered[::-1]
        self._running: list[Event] = []

    def launcher(self, name: str, begin: float, end: float) -> Event | None:
        """Return the operator of a kernel's name that was running with it, or the innermost when it began.

        The two are measured by different clocks, so a kernel may seem to have begun before its operator, or after one
        that it calls itself, and old torch counts in whole microseconds.

        Args:
            name: What ran.
            begin: Microseconds, by the trace's clock.
            end: The same.
        """
        named = self._by_name.get(name, [])
        position = bisect.bisect(named, begin, key=lambda each: each["ts"])
        around = named[max(position - 1, 0) : position + 1]

        def common(event: Event) -> float:
            return float(min(end, event["ts"] + event["dur"]) - max(begin, event["ts"]))

        nearest = max(around, key=common, default=None)
        return nearest if nearest is not None and common(nearest) > -_TOLERANCE else self._innermost_at(begin)

    def _innermost_at(self, time: float) -> Event | None:
        while self._ahead and self._ahead[-1]["ts"] <= time:
            self._running.append(self._ahead.pop())
        # Operators nest, so whatever lies above one that still runs and is over lay within it.
        self._running = [each for each in self._running if each["ts"] + each["dur"] >= time]
        return self._running[-1] if self._running else None


def _launchers(intervals: Iterable[Interval], events: Iterable[Event], base: int) -> list[Event | None]:
    """Return for each interval the operator that launched it, in the thread that did; they must be in order of time."""
    by_thread: dict[int, list[Event]] = {}
    for event in events:
        if event.get("cat") == "cpu_op" and event.get("ph") == "X":
            by_thread.setdefault(event["tid"], []).append(event)
    threads = {thread: _Operators(its_events) for thread, its_events in by_thread.items()}
    return [
        threads[thread].launcher(name, (begin - base) / _NANOSECONDS, (end - base) / _NANOSECONDS)
        if thread in threads
        else None
        for _, name, begin, end, thread, _ in intervals
    ]
