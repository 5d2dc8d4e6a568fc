"""Data model of a trace: operators, annotations, stacks and steps of the host, and events of the device.

Times are microseconds on the trace's own clock. Sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hpu_profiler.trace.intervals import Interval

#: Key of the metadata that HPUProfiler adds to a trace file.
METADATA_KEY: Final = "hpu_profiler"
#: Key of the lines of host-device synchronizations, which HPUProfiler adds to a trace with stacks.
CALL_LINES_KEY: Final = "hpu_profiler_call_lines"

#: "other" is work of an unknown engine, which is neither computation nor communication.
DeviceEventKind = Literal["kernel", "memcpy", "memset", "collective", "other"]
#: Lightning's RunningStage; empty if the trace does not show it.
Stage = Literal["train", "validate", "test", "predict", ""]


@dataclass(slots=True)
class Span:
    """Complete event of a trace.

    Attributes:
        name: Name in the trace.
        start: Start time.
        end: End time.
    """

    name: str
    start: float
    end: float

    @property
    def duration(self) -> float:
        """Microseconds from start to end."""
        return self.end - self.start

    @property
    def interval(self) -> Interval:
        """Start and end time."""
        return self.start, self.end


@dataclass(slots=True)
class HostSpan(Span):
    """Span of a host thread: an annotation, a step, or a logged call of the bridge.

    Attributes:
        thread: Thread id.
    """

    thread: int


@dataclass(slots=True)
class Operator(HostSpan):
    """Call of an operator on the host.

    Attributes:
        external_id: Kineto's "External id" of the call; 0 if the trace has none.
        shapes: Input shapes as text; empty unless they were recorded.
        self_time: Duration without the operators that it called.
        self_memory: Bytes allocated minus bytes freed, without the operators that it called.
    """

    external_id: int
    shapes: str = ""
    self_time: float = 0.0
    self_memory: int = 0


@dataclass(slots=True)
class SyncCall(HostSpan):
    """Call of a Python function that may wait for the device, such as ".item()"; only traces with stacks have them.

    Attributes:
        location: The line of the call as "file:line function"; empty if the trace does not have it.
    """

    location: str = ""


@dataclass(slots=True)
class DeviceEvent(Span):
    """Kernel, copy, memset or collective on the device.

    Attributes:
        kind: Kind of the work.
        engine: Engine that ran it, such as "MME"; "compute" if the trace does not name engines.
        recipe: The bridge's number of the graph that it belongs to; 0 if the trace does not have it.
        operator: Operator that launched the event; None if the trace has no link to it.
    """

    kind: DeviceEventKind
    engine: str
    recipe: int = 0
    operator: Operator | None = None


@dataclass
class TraceInfo:
    """What a trace says of its process and its recording, without the events.

    Attributes:
        path: File the trace was read from.
        rank: Global rank; None if the trace does not have it.
        world_size: Number of ranks; 1 if the trace does not have it.
        host: Host name; empty if the trace does not have it.
        run: Identifies the profiler that recorded it; empty if the trace does not have it.
        stage: Stage of the recorded steps.
        device_name: Name of the device; empty if the trace has no device.
        simulated: Whether the device was simulated.
        predicted: Whether the times are predictions of a model and not measured.
        bridge_metrics: Increase of the bridge's own metrics while the trace was recorded, by metric.
        libraries: Names of the installed Python packages; empty if the trace does not have them.
        sources: Source lines of the user's hooks as "file:line", by Lightning's name of the hook.
        recipes: Names of the bridge's graphs by their number.
        has_memory: Whether allocations were recorded.
        notes: What was wrong with the file, or could not be read, as sentences.
    """

    path: Path
    rank: int | None = None
    world_size: int = 1
    host: str = ""
    run: str = ""
    stage: Stage = ""
    device_name: str = ""
    simulated: bool = False
    predicted: bool = False
    bridge_metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    libraries: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)
    recipes: dict[int, str] = field(default_factory=dict)
    has_memory: bool = False
    notes: tuple[str, ...] = ()


@dataclass
class Trace(TraceInfo):
    """Recorded time range of one process, or the part of it that belongs to one stage.

    Attributes:
        operators: Operators of the host, ordered by start.
        device_events: Events of the device, ordered by start.
        steps: Complete steps, ordered by start.
        spans: Annotations and logged calls of the host, ordered by start.
        frames: Calls of Python functions and modules, ordered by start; empty unless stacks were recorded. Short calls
            are left out.
        sync_calls: Calls of Python functions that may wait for the device, ordered by start.
        compilations: Graph compilations, as far as the trace shows them.
        segments: Time ranges of the stage; empty if the whole window belongs to it.
    """

    operators: list[Operator] = field(default_factory=list)
    device_events: list[DeviceEvent] = field(default_factory=list)
    steps: list[HostSpan] = field(default_factory=list)
    spans: list[HostSpan] = field(default_factory=list)
    frames: list[HostSpan] = field(default_factory=list)
    sync_calls: list[SyncCall] = field(default_factory=list)
    compilations: list[HostSpan] = field(default_factory=list)
    segments: list[Interval] = field(default_factory=list)

    @property
    def info(self) -> TraceInfo:
        """The trace without its events, which need much memory."""
        return TraceInfo(**{each.name: getattr(self, each.name) for each in fields(TraceInfo)})

    @cached_property
    def window(self) -> Interval:
        """Start of the first step to end of the last one; without steps, of the first and the last event."""
        if self.steps:
            return self.steps[0].start, self.steps[-1].end
        spans: list[Span] = [*self.operators, *self.device_events, *self.spans]
        if not spans:
            return 0.0, 0.0
        return min(span.start for span in spans), max(span.end for span in spans)

    @property
    def windows(self) -> list[Interval]:
        """Disjoint time ranges of the stage within the window."""
        return self.segments or [self.window]

    @property
    def step_thread(self) -> int | None:
        """Thread that runs the steps; without steps, of the first operator."""
        spans = self.steps or self.operators
        return spans[0].thread if spans else None
