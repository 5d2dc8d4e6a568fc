"""Writer of traces as the published bridge (1.19.0) writes them, made from its tables; no simulator takes part.

Names of engines, kernels and collectives are SynapseAI's own, which is closed: those here are invented.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .bridge_rules import DEVICE_NAME, DEVICE_SORT_INDEX, LANES, LOGS, JsonEvent, category

if TYPE_CHECKING:
    from pathlib import Path

PID = 4019
#: Number of the type of the host's engine, which is the process of its calls, and two of its lanes.
_HOST_TYPE = 2
HOST_LANE = 7345
_LANES = {lane.header: lane for lane in LANES}


class BridgeTrace:
    """Trace of one rank. Times are microseconds.

    Args:
        **metadata: Members of the file.
    """

    def __init__(self, **metadata: Any) -> None:
        self.host: list[JsonEvent] = []
        self.added: list[JsonEvent] = []
        properties = [{"name": "GAUDI2", "totalGlobalMem": 96 << 30}]
        self._metadata = {"deviceProperties": properties, **metadata}
        self._named: set[tuple[int, int]] = set()
        self._name_process(0, DEVICE_NAME, DEVICE_SORT_INDEX)

    def torch(self, cat: str, name: str, start: float, duration: float, arguments: JsonEvent | None = None) -> None:
        """Add an event that torch writes."""
        point = {"pid": PID, "tid": PID, "ts": start, "dur": duration}
        self.host.append({"ph": "X", "cat": cat, "name": name, **point, "args": arguments or {}})

    def steps(self, count: int, duration: float) -> None:
        """Add the annotations of steps."""
        for index in range(count):
            self.torch("user_annotation", f"ProfilerStep#{index}", index * duration, duration)

    def engine(  # noqa: PLR0913 - the fields of an event
        self, header: str, name: str, start: float, duration: float, *, index: int = 0, recipe: int = 0
    ) -> JsonEvent:
        """Add an event of an engine of the card.

        Args:
            header: Prefix of the engine's header in the table of lanes.
            name: Operation of the event.
            start: Start.
            duration: Duration.
            index: Number of the engine.
            recipe: Number of its graph.
        """
        lane = _LANES[header]
        tid = lane.base + index
        self._name_lane(0, tid, f"{header.strip('* ')}{index}")
        return self._complete(category(lane, name), name, start, duration, 0, tid, recipe)

    def host_call(self, name: str, start: float, duration: float, *, recipe: int = 0) -> JsonEvent:
        """Add a call of SynapseAI on the host."""
        self._name_lane(_HOST_TYPE, HOST_LANE, "Synapse/toy_worker")
        self._name_lane(_HOST_TYPE, HOST_LANE + 1, "Synapse/***Host")
        return self._complete(category(None, name), name, start, duration, _HOST_TYPE, HOST_LANE, recipe)

    def enqueue(self, recipe: int, start: float, duration: float) -> JsonEvent:
        """Add the call that launches a graph."""
        return self.host_call("toy_enqueueWithExternalEvents", start, duration, recipe=recipe)

    def log(self, process: str, name: str, start: float, end: float, **arguments: str) -> None:
        """Add a call of "Synapse Logger" or "Bridge Logs"; with an infinite end, one that does not end."""
        pid = PID + LOGS[process]
        self._name_process(pid, process, pid)
        for phase, time in (("B", start), ("E", end)):
            if time < float("inf"):
                event = {"ph": phase, "cat": "Runtime", "name": name, "pid": pid, "tid": PID, "ts": time}
                self.added.append({**event, **({"args": arguments} if process == "Synapse Logger" else {})})

    def memory(self, time: float, size: int, total: int) -> None:
        """Add an allocation, or with a negative size a free."""
        pid = PID + LOGS["Memory Logs"]
        self._name_process(pid, "Memory Logs", pid)
        event = {
            "ph": "i",
            "s": "t",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": pid,
            "tid": PID,
            "ts": time,
        }
        arguments = {"Addr": 1, "Bytes": size, "Device Id": 0, "Device Type": 1, "Profiler Event Index": 1}
        totals = {"Total Allocated": total, "Total Reserved": 94 << 30}
        self.added.append({**event, "args": {**arguments, **totals}})

    def write(self, path: Path, *, exports: int = 1) -> Path:
        """Write the trace: torch's events, then those of the bridge, which only the first export has.

        Args:
            path: File to write.
            exports: Number of exports so far, with this one.
        """
        events = [*self.host, *(self.added if exports == 1 else [])]
        content = {"schemaVersion": 1, **self._metadata, "traceEvents": events}
        path.write_text(json.dumps(content, sort_keys=True, separators=(",", ":")))
        return path

    def _complete(  # noqa: PLR0913, PLR0917 - the fields of an event
        self, cat: str, name: str, start: float, duration: float, pid: int, tid: int, recipe: int
    ) -> JsonEvent:
        arguments: JsonEvent = {
            "dataType": "",
            "eventHandle": "0x0",
            "recipeId": recipe,
            "recipeName": f"r_{recipe}" if recipe else "",
            "streamHandle": "0x7a10",
            **({"device": 0} if cat == "Kernel" else {}),
        }
        point = {"pid": pid, "tid": tid, "ts": start, "dur": duration}
        self.added.append({"ph": "X", "cat": cat, "name": name, **point, "args": arguments})
        return self.added[-1]

    def _name_process(self, pid: int, name: str, sort_index: int) -> None:
        if (pid, -1) not in self._named:
            self._named.add((pid, -1))
            metadata = {"ph": "M", "pid": pid, "tid": 0, "ts": 0.0}
            self.added.append({**metadata, "name": "process_name", "args": {"name": name}})
            self.added.append({**metadata, "name": "process_sort_index", "args": {"sort_index": sort_index}})

    def _name_lane(self, pid: int, tid: int, name: str) -> None:
        if (pid, tid) not in self._named:
            self._named.add((pid, tid))
            metadata = {"ph": "M", "pid": pid, "tid": tid, "ts": 0.0}
            self.added.append({**metadata, "name": "thread_name", "args": {"name": name}})
            self.added.append({**metadata, "name": "thread_sort_index", "args": {"sort_index": -1}})
