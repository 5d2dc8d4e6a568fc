"""Time of a recorded step: what the device computes and moves, the network, and the host that launches it.

Nothing here is measured. A kernel of :mod:`hpu_sim.prediction.fusion` takes the longer of its floating-point operations
at the share of the peak that products reach, and of its bytes at the share of the memory's rate, and its start before
that. The device runs one kernel at a time, beside collectives that the program does not wait for.

The host traces or launches operators before the card runs them: one by one in eager mode, a graph at a time in lazy
mode and under ``torch.compile``. It runs ahead until it reads a value. The predicted step is a steady one, which begins
while the card still works on the step before.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hpu_sim.prediction import fusion, hardware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_sim.prediction.fusion import Kernel, Segment
    from hpu_sim.prediction.hardware import Hardware
    from hpu_sim.prediction.recording import Collective, Operation, Recording

#: Name of the host's part of a graph: tracing its operators in lazy mode, and launching it.
GRAPH_LAUNCH: Final = "graph_launch"
#: Name of what the device does while it waits.
IDLE: Final = "idle"
#: What limits a part of a step.
MATRIX, MEMORY, STARTS, NETWORK, HOST = "matrix engine", "memory", "start of kernels", "network", "host"

# Those that pass over the data twice. A reduction to all ranks is a scatter and a gather. A broadcast from one rank
# first scatters its parts, which the others then exchange, and a reduction to one rank is the reverse.
_TWO_PASSES: Final = frozenset({"allreduce", "allreduce_coalesced", "broadcast", "reduce"})
# One rank sends the whole tensor to one other.
_POINT_TO_POINT: Final = frozenset({"send", "recv"})


@dataclass(frozen=True)
class Span:
    """Part of the timeline.

    Attributes:
        stream: "compute", "network" or "host". The spans of "compute" follow each other without a gap.
        name: Operators, collective, or :data:`IDLE` where the device waits for what ``bound`` says.
        phase: Part of the step.
        module: Module of the first operator.
        bound: What limits it; of a kernel, beside its start.
        start: Seconds since the start of the step.
        end: As ``start``.
        starting: Seconds in which a kernel starts.
        bytes: Bytes that this rank contributes to a collective; 0 for all others.
        frame: Line of the program that waits for the device; empty for all others.
        is_product: Whether a kernel runs on the matrix engine.
        graph: Number of its graph, from 1; 0 where operators run one by one.
    """

    stream: str
    name: str
    phase: str
    module: str
    bound: str
    start: float
    end: float
    starting: float = 0.0
    bytes: int = 0
    frame: str = ""
    is_product: bool = False
    graph: int = 0

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.end - self.start

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by what limits them."""
        return {self.bound: self.seconds - self.starting, STARTS: self.starting}


@dataclass(frozen=True)
class Timeline:
    """Predicted step.

    Attributes:
        seconds: Duration, which is the sum of the spans of "compute".
        spans: What ran, or what the device waited for, and collectives.
        host_spans: Launches of operators or graphs, and host-device synchronizations.
    """

    seconds: float
    spans: tuple[Span, ...]
    host_spans: tuple[Span, ...]


def collective_seconds(collective: Collective, devices: int, hardware: Hardware) -> float:
    """Return the time of a collective.

    Within a box every pair of devices has its own links, over which each sends its parts in one hop (HCL 1.21,
    ``collective_states.cpp``). A group over several boxes first works within each box. Every device then sends its
    share between boxes.
    """
    ranks = len(collective.ranks)
    if ranks == 1:
        return 0.0
    boxes = len({rank // min(devices, hardware.box) for rank in collective.ranks})
    size = collective.total_bytes
    if collective.name in _POINT_TO_POINT:
        return hardware.collective_seconds + size / (hardware.outside_rate if boxes > 1 else hardware.peer_rate)
    inside = ranks // boxes
    passes = 2 if collective.name in _TWO_PASSES else 1
    seconds = hardware.collective_seconds
    if inside > 1:
        # (inside - 1) / inside of the data over (inside - 1) links.
        seconds += passes * size / inside / hardware.peer_rate
    if boxes > 1:
        seconds += hardware.collective_seconds
        seconds += passes * (boxes - 1) / boxes * size / inside / hardware.outside_rate
    return seconds


class Clock:
    """Clock of the steady step of a recording on a generation. It finds the kernels once.

    Attributes:
        recording: Recording.
        step: Its steady step.
        generation: Generation.
    """

    def __init__(self, recording: Recording, generation: str) -> None:
        self.recording, self.step, self.generation = recording, recording.steady, generation
        self._parts = fusion.segments(self.step, recording.mode)

    @functools.cached_property
    def timeline(self) -> Timeline:
        """The predicted step."""
        return _Schedule(self, self._parts).run()

    def range(self) -> tuple[float, float]:
        """Return the fewest and the most seconds of the step, between which 8 of 10 published values were."""
        seconds, spread = self.timeline.seconds, hardware.spread()
        return seconds / spread, seconds * spread

    def count_graphs(self) -> int | None:
        """Return the graphs to compile; None in eager mode, where operators are compiled one by one."""
        mode = self.recording.mode
        return None if mode == "eager" else fusion.count_graphs(self.step, mode)


class _Schedule:
    """Streams of host, device and network over two steps, of which the first one fills the queues."""

    def __init__(self, clock: Clock, parts: Sequence[Segment]) -> None:
        self._step, self._parts = clock.step, parts
        self._traces = clock.recording.lazy
        self._device = hardware.hardware(clock.generation)
        devices = clock.recording.devices
        self._network_times = [collective_seconds(each, devices, self._device) for each in self._step.collectives]
        self._host = self._clock = self._network = 0.0

    def run(self) -> Timeline:
        """Return the second step, as if it began at 0."""
        for _ in range(2):
            self._run_step()
        moved = (
            tuple(
                replace(each, start=max(each.start - self._begin, 0.0), end=max(each.end - self._begin, 0.0))
                for each in spans
            )
            for spans in (self._spans, self._host_spans)
        )
        return Timeline(self._clock - self._begin, *moved)

    def _run_step(self) -> None:
        step = self._step
        self._begin = self._clock
        self._graphs = 0
        self._spans: list[Span] = []
        self._host_spans: list[Span] = []
        self._ends: list[float] = []
        for part in self._parts:
            self._issue_before(part.first)
            self._run_segment(part)
        self._issue_before(len(step.operations))
        self._idle_until(self._network, NETWORK)

    def _issue_before(self, position: int) -> None:
        """Issue the collectives that the program calls before an operator."""
        collectives = self._step.collectives
        while len(self._ends) < len(collectives) and collectives[len(self._ends)].after <= position:
            index = len(self._ends)
            call = collectives[index]
            start = max(self._clock, self._network, self._host)
            self._network = start + self._network_times[index]
            self._ends.append(self._network)
            self._spans.append(
                Span("network", call.name, call.phase, "", NETWORK, start, self._network, bytes=call.bytes)
            )
            if not call.is_async:
                self._idle_until(self._network, NETWORK)

    def _idle_until(self, time: float, bound: str, operation: Operation | None = None) -> None:
        if time > self._clock:
            phase = operation.phase if operation is not None else ""
            self._spans.append(Span("compute", IDLE, phase, "", bound, self._clock, time))
            self._clock = time

    def _run_segment(self, part: Segment) -> None:
        first, device = self._step.operations[part.first], self._device
        waits = [self._ends[each] for each in first.waits_for if each < len(self._ends)]
        self._idle_until(max(waits, default=0.0), NETWORK, first)
        if first.host_sync:
            start = self._host
            self._host = max(self._host, self._clock) + device.sync_seconds
            self._add_host_span(first, first.name, start)
            return
        is_graph = part.is_graph
        if is_graph:
            start = self._host
            traced = sum(each.launches for each in part.kernels) if self._traces else 0
            self._host += device.graph_seconds + traced * device.trace_seconds
            self._add_host_span(first, GRAPH_LAUNCH, start)
            self._graphs += bool(part.kernels)
        for number, kernel in enumerate(part.kernels):
            operation = kernel.operations[0]
            if not is_graph:
                start = self._host
                self._host += kernel.launches * device.launch_seconds
                self._add_host_span(operation, operation.name, start)
            self._idle_until(self._host if number == 0 or not is_graph else 0.0, HOST, operation)
            starting = device.kernel_seconds + (device.start_seconds if number == 0 or not is_graph else 0.0)
            self._add_kernel(kernel, starting, self._graphs if is_graph else 0)

    def _add_kernel(self, kernel: Kernel, starting: float, graph: int) -> None:
        first, *others = kernel.operations
        device = self._device
        peaks = (each.flops / device.peak(each.dtype) for each in kernel.operations if each.flops)
        compute = math.fsum(peaks) / device.matrix_efficiency
        moving = kernel.bytes / device.memory_rate
        end = self._clock + starting + max(compute, moving)
        name = f"{first.name} and {len(others)} more" if others else first.name
        self._spans.append(
            Span(
                "compute", name, first.phase, first.module, MATRIX if compute > moving else MEMORY, self._clock, end,
                starting, is_product=compute > 0, graph=graph,
            )
        )  # fmt: skip
        self._clock = end

    def _add_host_span(self, operation: Operation, name: str, start: float) -> None:
        place = operation.phase, operation.module, HOST, start, self._host
        self._host_spans.append(Span("host", name, *place, frame=operation.frame))
