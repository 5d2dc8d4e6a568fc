"""Time of a recorded step: what each engine does when, the network, and the host that launches it.

Nothing here is measured. Kernels and their bytes are those of :mod:`hpu_sim.prediction.fusion`, the cycles of products
those of :mod:`hpu_sim.prediction.matrix_engine`. A kernel of the vector engines (TPC) takes the longest of its bytes,
of its loads and stores, and of its instructions. Neighbours on two engines, and kernels of a bundle, run beside each
other: one begins when the first part of what it reads is there, and ends a part of itself after that, as the compiler
cuts nodes into parts. Memory is one for all of them. In eager mode, one operator runs at a time.

The host traces or launches operators before the card runs them: one by one in eager mode, a graph at a time in lazy
mode and under ``torch.compile``. It runs ahead until it reads a value. The predicted step is a steady one, which begins
while the card still works on the step before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from hpu_sim.prediction import fusion, matrix_engine
from hpu_sim.prediction.collectives import collective_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_sim.prediction.fusion import Kernel, Segment
    from hpu_sim.prediction.hardware import Hardware
    from hpu_sim.prediction.recording import Operation, Recording, StepRecording

#: Name of the host's part of a graph: tracing its operators in lazy mode, and launching it.
GRAPH_LAUNCH: Final = "graph_launch"

#: Way in which the host launches operators.
Mode = Literal["eager", "lazy", "compile"]


@dataclass(frozen=True)
class Span:
    """Part of the timeline.

    Attributes:
        stream: "compute", "network" or "host".
        name: Operators or collective.
        phase: Part of the step.
        module: Module of the first operator.
        bound: What limits it: "matrix engine", "vector engines", "memory", "network", "host".
        start: Seconds since the start of the step.
        end: As ``start``.
        bytes: Bytes that this rank contributes to a collective; 0 for all others.
        frame: Line of the program that waits for the device; empty for all others.
        began: When an engine began with a kernel. ``start`` to ``end`` is the part that nothing before it hides, with
            what it waits for.
        engine: Engine of a kernel: "matrix", "vector" or "copy".
        graph: Number of its graph, from 1; 0 where operators run one by one.
    """

    stream: str
    name: str
    phase: str
    module: str
    bound: str
    start: float
    end: float
    bytes: int = 0
    frame: str = ""
    began: float = 0.0
    engine: str = ""
    graph: int = 0

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.end - self.start


@dataclass(frozen=True)
class Timeline:
    """Predicted step.

    Attributes:
        seconds: Duration.
        spans: What ran when on the device.
        host_spans: Launches of operators or graphs, and host-device synchronizations.
        exposed: Seconds in which the device waited for the network.
    """

    seconds: float
    spans: tuple[Span, ...]
    host_spans: tuple[Span, ...]
    exposed: float

    def scaled(self, seconds: float) -> Timeline:
        """Return the timeline stretched to a duration, such as the middle of a step's range."""
        factor = seconds / self.seconds if self.seconds else 1.0
        spans, host_spans = (_moved(each, 0.0, factor) for each in (self.spans, self.host_spans))
        return Timeline(seconds, spans, host_spans, self.exposed * factor)


def mode_of(recording: Recording) -> Mode:
    """Return how the host launches the operators of a recorded program."""
    if recording.lazy:
        return "lazy"
    return "compile" if recording.compiled else "eager"


class Schedule:
    """Streams of host, device and network over consecutive steps; the last one is kept.

    Args:
        step: Recorded step.
        device: Device.
        devices: Devices per box.
        mode: How the host launches operators.
        parts: Segments of an earlier schedule of the step, with other efficiencies; None to find them.

    Attributes:
        parts: Segments of the step.
    """

    def __init__(
        self,
        step: StepRecording,
        device: Hardware,
        devices: int,
        mode: Mode,
        parts: tuple[Segment, ...] | None = None,
    ) -> None:
        self._step = step
        if parts is None:
            parts = fusion.segments(step, device, fuse=mode != "eager", by_phase=mode == "compile")
        self.parts = parts
        self._device = device
        self._mode = mode
        works: dict[int, _Work] = {}
        for kernel in (each for part in parts for each in part.kernels):
            # Repeated layers have equal kernels.
            if kernel.shape not in works:
                works[kernel.shape] = _work(kernel, device)
        alone = {shape: (0.0, device.start_seconds + work.seconds, work.limit) for shape, work in works.items()}
        self._times = [
            [alone[each.shape] for each in part.kernels]
            if self._launches_one_by_one(part)
            else self._schedule(part, [works[each.shape] for each in part.kernels])
            for part in parts
        ]
        self._network_times = [collective_seconds(each, devices, device) for each in step.collectives]
        self._host = self._clock = self._network = self._end = 0.0
        self._run()  # It fills the queues, so that the next one is steady.

    def seconds(self) -> float:
        """Return the duration of one more step."""
        self._run()
        return self._end - self._begin

    def timeline(self) -> Timeline:
        """Return one more step, as if it began at 0."""
        self._run(keeps_spans=True)
        spans, host_spans = (_moved(each, self._begin, 1.0) for each in (self._spans, self._host_spans))
        return Timeline(self._end - self._begin, spans, host_spans, self._exposed)

    def _run(self, *, keeps_spans: bool = False) -> None:
        """Run the step once more, behind what already runs."""
        self._keeps_spans = keeps_spans
        self._begin = self._end
        self._exposed = 0.0
        self._graphs = 0
        self._spans: list[Span] = []
        self._host_spans: list[Span] = []
        self._ends: list[float] = []
        self._host += self._step.loader_seconds * self._device.loader_factor
        for part, times in zip(self.parts, self._times, strict=True):
            self._issue_before(part.first)
            self._run_segment(part, times)
        self._issue_before(len(self._step.operations))
        self._wait(self._network)
        # Workers that need longer than a step delay the next one.
        worker_seconds = self._step.worker_seconds * self._device.loader_factor
        self._host = max(self._host, self._begin + worker_seconds)
        self._end = max(self._clock, self._end + worker_seconds)

    def _issue_before(self, position: int) -> None:
        """Issue the collectives that the program calls before an operator."""
        collectives = self._step.collectives
        while len(self._ends) < len(collectives) and collectives[len(self._ends)].after <= position:
            index = len(self._ends)
            call = collectives[index]
            start = max(self._clock, self._network, self._host)
            self._network = start + self._network_times[index]
            self._ends.append(self._network)
            if self._keeps_spans:
                place = (call.phase, "", "network", start, self._network)
                self._spans.append(Span("network", call.name, *place, bytes=call.bytes))
            if not call.is_async or self._mode == "lazy":
                # Lazy mode runs no graph beside a collective (PT_HPU_ENABLE_LAZY_COLLECTIVES is off).
                self._wait(self._network)

    def _wait(self, arrival: float) -> None:
        self._exposed += max(arrival - self._clock, 0.0)
        self._clock = max(self._clock, arrival)

    def _run_segment(self, part: Segment, times: Sequence[_Scheduled]) -> None:
        first, device = self._step.operations[part.first], self._device
        awaited = [self._ends[each] for each in first.waits_for if each < len(self._ends)]
        if awaited:
            self._wait(max(awaited))
        if first.host_sync:
            start = self._host
            self._host = max(self._host, self._clock) + device.sync_seconds
            self._add_host_span(first, first.name, start)
            return
        is_graph, graph = not self._launches_one_by_one(part), 0
        if is_graph:
            start = self._host
            self._host += device.graph_seconds
            if self._mode == "lazy":
                self._host += sum(each.launches for each in part.kernels) * device.trace_seconds
            self._add_host_span(first, GRAPH_LAUNCH, start)
            if not part.kernels:
                return
            self._idle_until(self._host, part.kernels[0].operations[0])
            self._graphs += 1
            graph = self._graphs
        begin = self._clock
        for kernel, scheduled in zip(part.kernels, times, strict=True):
            if not is_graph:
                start = self._host
                self._host += kernel.launches * device.launch_seconds
                self._add_host_span(kernel.operations[0], kernel.operations[0].name, start)
                self._idle_until(self._host, kernel.operations[0])
                begin = self._clock
            end = max(begin + scheduled[1], self._clock)
            if self._keeps_spans:
                self._spans.append(_kernel_span(kernel, scheduled, begin, (self._clock, end), graph))
            self._clock = end

    def _launches_one_by_one(self, part: Segment) -> bool:
        """Return whether the host launches operators by themselves: under ``torch.compile``, the optimizer's."""
        is_optimizer = self._step.operations[part.first].phase == "optimizer"
        return self._mode == "eager" or (self._mode == "compile" and is_optimizer)

    def _add_host_span(self, operation: Operation, name: str, start: float) -> None:
        if self._keeps_spans:
            place = (operation.phase, operation.module, "host", start, self._host)
            self._host_spans.append(Span("host", name, *place, frame=operation.frame))

    def _idle_until(self, moment: float, operation: Operation) -> None:
        if moment > self._clock:
            if self._keeps_spans:
                self._spans.append(Span("compute", "idle", operation.phase, "", "host", self._clock, moment))
            self._clock = moment

    def _schedule(self, part: Segment, works: Sequence[_Work]) -> list[_Scheduled]:
        """Return when kernels of a graph run, relative to its start."""
        device = self._device
        found: list[_Scheduled] = []
        free: dict[str, float] = {}
        memory = device.start_seconds
        # Latest ends of kernels before the last one, of two bundles.
        latest = other_latest = (-1, device.start_seconds)
        for number, (kernel, work) in enumerate(zip(part.kernels, works, strict=True)):
            if number > 1:
                known = part.kernels[number - 2].bundle, found[number - 2][1]
                if known[1] > latest[1]:
                    other_latest = latest if latest[0] != known[0] else other_latest
                    latest = known
                elif known[1] > other_latest[1] and known[0] != latest[0]:
                    other_latest = known
            # A kernel runs beside the one before it, and beside those of its bundle.
            before_it = other_latest if latest[0] == kernel.bundle else latest
            begin, end = max(free.get(kernel.engine, 0.0), before_it[1]), 0.0
            for index, is_cached in kernel.depends:
                if part.kernels[index].engine == kernel.engine:
                    continue  # An engine runs its kernels in order.
                parts = device.bundle_slices if is_cached else device.pipeline_parts
                other_begin, other_end, _ = found[index]
                begin = max(begin, other_begin + (other_end - other_begin) / parts)
                end = max(end, other_end + work.seconds / parts)
            memory = max(memory, begin) + work.memory
            end = max(end, begin + work.seconds, memory)
            free[kernel.engine] = end
            found.append((begin, end, work.limit))
        return found


#: Begin and end of a kernel on its engine, and what limits it.
_Scheduled = tuple[float, float, str]


@dataclass(frozen=True)
class _Work:
    """Time of a kernel that has its engine and the memory for itself."""

    seconds: float
    memory: float
    limit: str


def _moved(spans: Iterable[Span], begin: float, factor: float) -> tuple[Span, ...]:
    """Return spans relative to the start of their step, stretched; the host may have been there before."""

    def move(moment: float) -> float:
        return max(moment - begin, 0.0) * factor

    return tuple(replace(each, start=move(each.start), end=move(each.end), began=move(each.began)) for each in spans)


def _kernel_span(kernel: Kernel, scheduled: _Scheduled, begin: float, ends: tuple[float, float], graph: int) -> Span:
    first, *others = kernel.operations
    name = f"{first.name} and {len(others)} more" if others else first.name
    began = min(begin + scheduled[0], ends[1])
    place = first.phase, first.module, scheduled[2], *ends
    return Span("compute", name, *place, began=began, engine=kernel.engine, graph=graph)


def _work(kernel: Kernel, device: Hardware) -> _Work:
    """Return the time of a kernel, and what limits it.

    A product, its operands and, in fused attention, the scores between its products are cut into slices.
    """
    rate = min(device.copy_rate, device.memory_rate) if kernel.engine == "copy" else device.memory_rate
    memory = kernel.bytes / rate
    # A load, a store and an operation are slots of one instruction.
    cycles = max(
        max(kernel.loaded, kernel.stored) * device.load_cycles, kernel.simple + kernel.special * device.special_cycles
    )
    times = {"matrix engine": 0.0, "vector engines": cycles / device.vector_rate, "memory": memory}
    if kernel.engine == "matrix":
        times["matrix engine"] = sum(_product_seconds(each, device) for each in kernel.operations)
    limit = max(times, key=times.__getitem__)
    seconds = times[limit]
    if kernel.engine == "matrix":
        seconds += sorted(times.values())[-2] / device.bundle_slices
    return _Work(seconds + device.kernel_seconds, memory, limit)


def _product_seconds(operation: Operation, device: Hardware) -> float:
    """Return the time of the products of an operator on the matrix engine."""
    if not operation.products:
        peak = device.matrix_flops.get(operation.dtype) or device.matrix_flops["float32"]
        return operation.flops / peak / device.matrix_efficiency
    # A product in float8 has a result in bfloat16.
    item = max(matrix_engine.ITEM_BYTES.get(operation.dtype, 4), 2)
    seconds = (
        matrix_engine.seconds(each, operation.dtype, item, device.generation, device.writeout)
        for each in operation.products
    )
    return sum(seconds) / device.matrix_efficiency
