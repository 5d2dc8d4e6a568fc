"""Builder for the JSON events of a trace."""

import json
from pathlib import Path
from typing import Any, Final

from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reader import read_trace

JsonEvent = dict[str, Any]


class TraceBuilder:
    """Makes JSON events as torch and the bridge write them. Times are microseconds.

    The lanes are those of `bridge_rules`. Ids of operators and launches are torch's; the bridge up to 1.19 writes none.

    Args:
        folder: Folder for trace files.
    """

    HOST_PID = 70
    DEVICE_PID = 0
    #: Process and thread of SynapseAI's calls on the host.
    HOST_LANE = (2, 7345)
    TRACKS: Final = {"MME": 6000, "TPC": 7000, "DMA": 3000, "NIC": 14_000}

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, *events: JsonEvent, name: str = "fit-0-training.1.pt.trace.json", **metadata: Any) -> Path:
        """Write a trace file with events and metadata."""
        path = self._folder / name
        path.write_text(json.dumps({"schemaVersion": 1, **metadata, "traceEvents": [*self.track_names(), *events]}))
        return path

    def trace(self, *events: JsonEvent, **options: Any) -> Trace:
        """Return the trace of events and metadata, read from a file."""
        return read_trace(self.write(*events, **options))

    def operator(  # noqa: PLR0913 - the fields of an event
        self, name: str, start: float, duration: float, external_id: int = 0, *, thread: int = 7, shapes: object = None
    ) -> JsonEvent:
        """Return an operator of the host."""
        arguments = {"External id": external_id, **({} if shapes is None else {"Input Dims": shapes})}
        return self._complete("cpu_op", name, start, duration, self.HOST_PID, thread, arguments)

    def annotation(self, name: str, start: float, duration: float) -> JsonEvent:
        """Return a user annotation."""
        return self._complete("user_annotation", name, start, duration, self.HOST_PID, 7, {})

    def step(self, number: int, start: float, duration: float) -> JsonEvent:
        """Return the annotation of a step."""
        return self.annotation(f"ProfilerStep#{number}", start, duration)

    def device_event(  # noqa: PLR0913 - the fields of an event
        self,
        name: str,
        start: float,
        duration: float,
        track: str = "TPC",
        cat: str = "kernel",
        *,
        external_id: int = 0,
        correlation: int = 0,
    ) -> JsonEvent:
        """Return an event of the device."""
        given = {"External id": external_id, "correlation": correlation}
        arguments = {key: value for key, value in given.items() if value}
        cat = "Runtime" if track == "NIC" else cat
        return self._complete(cat, name, start, duration, self.DEVICE_PID, self.TRACKS[track], arguments)

    def host_call(self, name: str, start: float, duration: float) -> JsonEvent:
        """Return a call of SynapseAI on the host."""
        return self._complete("Runtime", name, start, duration, *self.HOST_LANE, {})

    def frame(self, name: str, start: float, duration: float) -> JsonEvent:
        """Return a call of a Python function."""
        return self._complete("python_function", name, start, duration, self.HOST_PID, 7, {})

    def launch(self, start: float, duration: float, correlation: int, external_id: int = 0) -> JsonEvent:
        """Return a call of the runtime that queues a device event."""
        arguments = {"External id": external_id, "correlation": correlation}
        return self._complete("Runtime", "launch", start, duration, self.HOST_PID, 7, arguments)

    def allocation(self, time: float, size: int) -> JsonEvent:
        """Return an allocation, or with a negative size a free."""
        point = {"pid": self.HOST_PID, "tid": 7, "ts": time}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", **point, "args": {"Bytes": size}}

    def track_names(self) -> list[JsonEvent]:
        """Return the metadata events that name the device and its tracks."""
        device = {"ph": "M", "pid": self.DEVICE_PID}
        return [
            {**device, "name": "process_name", "tid": 0, "args": {"name": "/device:HPU:0"}},
            *(
                {**device, "name": "thread_name", "tid": number, "args": {"name": track}}
                for track, number in self.TRACKS.items()
            ),
            {
                "ph": "M",
                "name": "thread_name",
                **dict(zip(("pid", "tid"), self.HOST_LANE, strict=True)),
                "args": {"name": "Synapse/toy_worker"},
            },
        ]

    def _complete(  # noqa: PLR0913, PLR0917 - the fields of an event
        self, cat: str, name: str, start: float, duration: float, pid: int, tid: int, arguments: JsonEvent
    ) -> JsonEvent:
        point = {"pid": pid, "tid": tid, "ts": start, "dur": duration}
        return {"ph": "X", "cat": cat, "name": name, **point, "args": arguments}
