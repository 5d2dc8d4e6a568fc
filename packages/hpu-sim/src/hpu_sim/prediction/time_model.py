"""Time of a recorded step: a roofline per kernel on two streams, and the host that launches them.

Nothing here is measured. A matrix product takes the longer of its arithmetic, with dimensions padded to the engine, and
its bytes. Any other kernel takes the longer of its bytes and of the vector engines' instructions. Vector work hides
behind the product before it as far as that leaves the memory free, so no step is faster than the roofline.

The host traces or launches operators before the card runs them: one by one in eager mode, a graph at a time in lazy
mode and under ``torch.compile``. It runs ahead until it reads a value. The predicted step is a steady one, which begins
while the card still works on the step before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from hpu_sim.prediction import fusion
from hpu_sim.prediction.collectives import collective_seconds
from hpu_sim.prediction.hardware import hardware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_sim.prediction.fusion import Kernel, Segment
    from hpu_sim.prediction.hardware import Estimate, Hardware
    from hpu_sim.prediction.recording import Operation, Recording, StepRecording

# Dimensions of a matrix product are multiples of this many bytes: 128 elements of bfloat16, 64 of float32 (Intel's
# advice for operand sizes).
_ALIGNMENT: Final = 256
_ITEM_BYTES: Final = {"float8": 1, "bfloat16": 2, "float16": 2}
# Operators by which the transformer engine takes the maximum of both operands of a product and casts them.
_LAUNCHES_OF_CASTS: Final = 4

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
        flops: Floating-point operations of a matrix product; 0 for all others.
        bytes: Bytes that this rank contributes to a collective; 0 for all others.
        frame: Line of the program that waits for the device; empty for all others.
    """

    stream: str
    name: str
    phase: str
    module: str
    bound: str
    start: float
    end: float
    flops: int = 0
    bytes: int = 0
    frame: str = ""

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
        host: Seconds in which the device waited for the host.
    """

    seconds: float
    spans: tuple[Span, ...]
    host_spans: tuple[Span, ...]
    exposed: float
    host: float


def mode_of(recording: Recording) -> Mode:
    """Return how the host launches the operators of a recorded program."""
    if recording.lazy:
        return "lazy"
    return "compile" if recording.compiled else "eager"


def predict(step: StepRecording, generation: str, devices: int, mode: Mode, estimate: Estimate = "middle") -> Timeline:
    """Return the timeline of a step.

    Args:
        step: Recorded step.
        generation: Generation of the devices.
        devices: Devices per box.
        mode: How the host launches operators.
        estimate: End of the hardware's ranges, or their middle.
    """
    return timeline(step, hardware(generation, estimate), devices, mode=mode)


def segments_of(step: StepRecording, device: Hardware, mode: Mode) -> tuple[Segment, ...]:
    """Return the segments of a step in a mode; a caller who changes only efficiencies can keep them."""
    return fusion.segments(step, fuse=mode != "eager", by_phase=mode == "compile", sram=device.sram_bytes)


def timeline(step: StepRecording, device: Hardware, devices: int, *, mode: Mode) -> Timeline:
    """Return the timeline of a step on a device, whose figures may be those of a calibration; see :func:`predict`."""
    schedule = _Schedule(step, segments_of(step, device, mode), device, devices, mode)
    schedule.run()
    schedule.run(keeps_spans=True)
    return schedule.result()


def step_seconds(  # noqa: PLR0913 - as `predict`
    step: StepRecording,
    device: Hardware,
    devices: int,
    *,
    mode: Mode,
    float8: bool = False,
    parts: tuple[Segment, ...] | None = None,
) -> float:
    """Return the seconds of :func:`timeline` without its spans, for many predictions of one step.

    Args:
        step: Recorded step.
        device: Device.
        devices: Devices per box.
        mode: How the host launches operators.
        float8: Whether matrix products of weights run in float8.
        parts: Segments of the step, of :func:`segments_of`; None to find them.
    """
    parts = segments_of(step, device, mode) if parts is None else parts
    schedule = _Schedule(step, parts, device, devices, mode, float8=float8)
    schedule.run()
    schedule.run()
    return schedule.seconds


class _Schedule:
    """Streams of host, device and network over consecutive steps; the last one is kept."""

    def __init__(  # noqa: PLR0913 - see `step_seconds`
        self,
        step: StepRecording,
        parts: Sequence[Segment],
        device: Hardware,
        devices: int,
        mode: Mode,
        *,
        float8: bool = False,
    ) -> None:
        self._step = step
        self._parts = parts
        self._device = device
        self._mode = mode
        self._float8 = float8
        self._times = [self._kernel_times(part) for part in parts]
        self._launches = [[self._launches_of(kernel) for kernel in part.kernels] for part in parts]
        self._network_times = [
            collective_seconds(each, devices, device)
            + each.copied_bytes / (device.memory_rate * device.vector_efficiency)
            for each in step.collectives
        ]
        self._host = self._clock = self._network = self._end = 0.0

    @property
    def seconds(self) -> float:
        """Duration of the step that ran last."""
        return self._end - self._begin

    def result(self) -> Timeline:
        """Return the step that ran last, as if it began at 0."""
        begin = self._begin
        return Timeline(
            self.seconds,
            tuple(_shifted(each, begin) for each in self._spans),
            tuple(_shifted(each, begin) for each in self._host_spans),
            self._exposed,
            self._idle,
        )

    def run(self, *, keeps_spans: bool = False) -> None:
        """Run the step once more, behind what already runs: the first one fills the queues, the second is steady."""
        self._keeps_spans = keeps_spans
        self._begin = self._end
        self._exposed = self._idle = 0.0
        self._spans: list[Span] = []
        self._host_spans: list[Span] = []
        self._ends: list[float] = []
        self._host += self._step.loader_seconds * self._device.loader_factor
        for part, times, launches in zip(self._parts, self._times, self._launches, strict=True):
            self._issue_before(part.first)
            self._run_segment(part, times, launches)
        self._issue_before(len(self._step.operations))
        self._exposed += max(self._network - self._clock, 0.0)
        self._clock = max(self._network, self._clock)
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

    def _run_segment(self, part: Segment, times: Sequence[tuple[float, str]], launches: Sequence[int]) -> None:
        first = self._step.operations[part.first]
        awaited = [self._ends[each] for each in first.waits_for if each < len(self._ends)]
        if awaited:
            self._wait(max(awaited))
        if first.host_sync:
            start = self._host
            self._host = max(self._host, self._clock) + self._device.sync_seconds
            self._add_host_span(first, first.name, start)
            return
        is_one_by_one = self._launches_one_by_one(first)
        if not is_one_by_one:
            self._launch(first, sum(launches))
        for kernel, (seconds, limit), count in zip(part.kernels, times, launches, strict=True):
            if is_one_by_one:
                self._launch(kernel.operations[0], count)
            self._idle_until(self._host, kernel.operations[0])
            if self._keeps_spans:
                self._spans.append(_kernel_span(kernel, limit, self._clock, self._clock + seconds))
            self._clock += seconds

    def _launches_of(self, kernel: Kernel) -> int:
        """Return the operators of a kernel that the host traces or launches."""
        casts = _LAUNCHES_OF_CASTS if self._float8 and _runs_in_float8(kernel.operations[0], self._device) else 0
        return sum(each.is_launched for each in kernel.operations) + casts

    def _launches_one_by_one(self, operation: Operation) -> bool:
        """Return whether the host launches an operator by itself: under ``torch.compile``, the optimizer's are."""
        return self._mode == "eager" or (self._mode == "compile" and operation.phase == "optimizer")

    def _launch(self, operation: Operation, count: int) -> None:
        start, device = self._host, self._device
        name = operation.name
        if self._launches_one_by_one(operation):
            self._host += count * device.launch_seconds
        else:
            name = GRAPH_LAUNCH
            self._host += device.graph_seconds + (count * device.trace_seconds if self._mode == "lazy" else 0.0)
        self._add_host_span(operation, name, start)

    def _add_host_span(self, operation: Operation, name: str, start: float) -> None:
        if self._keeps_spans:
            place = (operation.phase, operation.module, "host", start, self._host)
            self._host_spans.append(Span("host", name, *place, frame=operation.frame))

    def _idle_until(self, moment: float, operation: Operation) -> None:
        if moment > self._clock:
            if self._keeps_spans:
                self._spans.append(Span("compute", "idle", operation.phase, "", "host", self._clock, moment))
            self._idle += moment - self._clock
            self._clock = moment

    def _kernel_times(self, part: Segment) -> list[tuple[float, str]]:
        """Return seconds and limit of each kernel of a segment."""
        times = []
        spare = 0.0
        is_one_by_one = self._launches_one_by_one(self._step.operations[part.first])
        for index, kernel in enumerate(part.kernels):
            if kernel.operations[0].flops:
                seconds, limit, spare = _matrix_seconds(kernel.operations[0], self._device, float8=self._float8)
            else:
                seconds, limit = _vector_seconds(kernel, self._device)
                hidden = min(seconds * self._device.engine_overlap, spare) if self._mode != "eager" else 0.0
                seconds, spare = seconds - hidden, spare - hidden
            start = self._device.start_seconds if is_one_by_one or not index else 0.0
            times.append((start + seconds, limit))
        return times


def _shifted(span: Span, begin: float) -> Span:
    """Return a span relative to the start of its step; the host may have been there before."""
    return replace(span, start=max(span.start - begin, 0.0), end=max(span.end - begin, 0.0))


def _kernel_span(kernel: Kernel, limit: str, start: float, end: float) -> Span:
    first, *others = kernel.operations
    name = f"{first.name} and {len(others)} more" if others else first.name
    flops = sum(each.flops for each in kernel.operations)
    return Span("compute", name, first.phase, first.module, limit, start, end, flops)


def _vector_seconds(kernel: Kernel, device: Hardware) -> tuple[float, str]:
    """Return the time of a kernel without a product, and what limits it."""
    memory = kernel.bytes / (device.memory_rate * device.vector_efficiency)
    vector = kernel.vector_bytes * device.vector_instructions / device.vector_rate
    seconds = max(memory, vector) + device.kernel_seconds
    return seconds, "memory" if memory >= vector else "vector engines"


def _matrix_seconds(operation: Operation, device: Hardware, *, float8: bool) -> tuple[float, str, float]:
    """Return the time of a product, what limits it, and the seconds of it in which the memory is free."""
    casts = 0.0
    dtype = operation.dtype
    if float8 and _runs_in_float8(operation, device):
        dtype = "float8"
        # The transformer engine reads each operand for its maximum, and again to cast it.
        read = sum(size for _, size in operation.reads)
        written = read * _ITEM_BYTES["float8"] // _ITEM_BYTES["bfloat16"]
        casts = (2 * read + written) / (device.memory_rate * device.vector_efficiency) + 2 * device.kernel_seconds
    flops = float(operation.flops)
    if operation.matmul is not None:
        flops *= padding(operation.matmul, dtype)
    peak = device.matrix_flops.get(dtype) or device.matrix_flops["float32"]
    arithmetic = flops / (peak * device.matrix_efficiency)
    size = operation.bytes
    if dtype == "float8":
        size = size * _ITEM_BYTES["float8"] // _ITEM_BYTES["bfloat16"]
    memory = size / (device.memory_rate * device.vector_efficiency)
    seconds = max(arithmetic, memory) + device.kernel_seconds + casts
    spare = max(arithmetic - memory, 0.0)
    return seconds, "matrix engine" if arithmetic >= memory else "memory", spare


def _runs_in_float8(operation: Operation, device: Hardware) -> bool:
    """Return whether a product is one of weights, on a card with float8."""
    return operation.matmul is not None and operation.matmul[0] == 1 and "float8" in device.matrix_flops


def padding(shape: tuple[int, int, int, int], dtype: str) -> float:
    """Return the factor by which padding to the matrix engine multiplies the work of a product.

    >>> padding((1, 64, 128, 128), "bfloat16")
    2.0
    """
    step = _ALIGNMENT // _ITEM_BYTES.get(dtype, 4)
    factor = 1.0
    for size in shape[1:]:
        factor *= -(-size // step) * step / max(size, 1)
    return factor
