"""Predicted step as a Chrome trace, which hpu-profiler, Perfetto and Chrome read.

Every event of the device and the device itself say "predicted".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hpu_sim.prediction.recording import HOST_READ, PREDICTED
from hpu_sim.prediction.time_model import GRAPH_LAUNCH, IDLE

if TYPE_CHECKING:
    from hpu_sim.prediction.time_model import Clock, Span

TraceEvent = dict[str, Any]

_DEVICE_PID: Final = 0
_HOST_PID: Final = 1
# The matrix engine (MME) runs products and convolutions, the vector engines (TPC) the rest.
_TRACKS: Final = ("MME", "TPC", "NIC")
_MME, _TPC, _NIC = range(len(_TRACKS))
_US_PER_SECOND: Final = 1e6
_TICKS_PER_US: Final = 1024


def trace_of(clock: Clock) -> dict[str, Any]:
    """Return the trace of a clock's step, which the first rank runs."""
    timeline, world_size = clock.timeline, clock.recording.world_size
    events = _metadata_events()
    events.append(_event("user_annotation", "ProfilerStep#1", _HOST_PID, _HOST_PID, 0.0, timeline.seconds, {}))
    # A graph has many kernels. In eager mode, each kernel has a launch, in the same order.
    has_graphs = any(span.name == GRAPH_LAUNCH for span in timeline.host_spans)
    launched = []
    for number, span in enumerate(timeline.host_spans, start=1):
        events += _host_events(span, number)
        launched += [] if has_graphs or span.name == HOST_READ else [number]
    launches = iter(launched)
    for span in timeline.spans:
        if span.name != IDLE:
            launch = next(launches, 0) if span.stream == "compute" else 0
            events.append(_device_event(span, launch))
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [{"id": 0, "name": clock.generation, "predicted": True, "disclaimer": PREDICTED}],
        "distributedInfo": {"backend": "hccl", "rank": 0, "world_size": world_size},
        # The key of hpu-profiler's metadata.
        "hpu_profiler": {"stage": "training", "steps": 1},
        "traceEvents": events,
    }


def _metadata_events() -> list[TraceEvent]:
    metadata: list[tuple[str, int, int, dict[str, Any]]] = [
        ("process_name", _DEVICE_PID, 0, {"name": f"/device:HPU:0 ({PREDICTED})"}),
        ("process_labels", _DEVICE_PID, 0, {"labels": PREDICTED}),
        ("process_name", _HOST_PID, _HOST_PID, {"name": f"host ({PREDICTED})"}),
        *(("thread_name", _DEVICE_PID, track, {"name": name}) for track, name in enumerate(_TRACKS)),
    ]
    return [
        {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args} for name, pid, tid, args in metadata
    ]


def _host_events(span: Span, number: int) -> list[TraceEvent]:
    """Return the operator of a span, within the line of the program if it is known."""
    place = (_HOST_PID, _HOST_PID, span.start, span.end)
    is_read = span.name == HOST_READ
    name = "aten::item" if is_read else _operator_name(span.name)
    operator = _event("cpu_op", name, *place, {"External id": number, "predicted": True})
    return [*([_event("python_function", span.frame, *place, {})] if span.frame else []), operator]


def _device_event(span: Span, launch: int) -> TraceEvent:
    args: dict[str, Any] = {"predicted": True, "phase": span.phase, "module": span.module, "limited by": span.bound}
    if launch:
        args["External id"] = launch
    if span.graph:
        args["recipeId"] = span.graph
    if span.stream == "network":
        args["bytes"] = span.bytes
        return _event("kernel", f"hccl:{span.name}", _DEVICE_PID, _NIC, span.start, span.end, args)
    track = _MME if span.is_product else _TPC
    return _event("kernel", _operator_name(span.name), _DEVICE_PID, track, span.start, span.end, args)


def _operator_name(name: str) -> str:
    """Return an operator's name as torch's profiler writes it: "aten::mm"."""
    return name.replace(".", "::", 1)


def _event(  # noqa: PLR0913, PLR0917 - the fields of an event
    category: str, name: str, pid: int, tid: int, start: float, end: float, args: dict[str, Any]
) -> TraceEvent:
    # Multiples that floats represent exactly, because events that touch must not overlap.
    begin, stop = (round(seconds * _US_PER_SECOND * _TICKS_PER_US) / _TICKS_PER_US for seconds in (start, end))
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begin,
        "dur": stop - begin,
        "args": args,
    }
