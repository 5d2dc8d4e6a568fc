"""Time of a recorded step: a roofline per operator on two streams, at both ends of the hardware's ranges.

Nothing here is measured. A matrix product takes the longer of its arithmetic, with dimensions padded to the engine, and
its bytes. Everything else takes its bytes. In lazy mode and under ``torch.compile``, a chain of element-wise operators
reads its inputs and writes its results once. In eager mode, each operator does, and the host launches each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.prediction.collectives import collective_seconds
from hpu_sim.prediction.hardware import hardware

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpu_sim.prediction.hardware import Estimate, Hardware
    from hpu_sim.prediction.recording import Collective, Operation, StepRecording

# Dimensions of a matrix product are multiples of this many bytes: 128 elements of bfloat16, 64 of float32 (Intel's
# advice for operand sizes).
_ALIGNMENT: Final = 256
_ITEM_BYTES: Final = {"float8": 1, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Span:
    """Part of the timeline.

    Attributes:
        stream: "compute", "network" or "host".
        name: Operators or collective.
        phase: Part of the step.
        module: Module of the first operator.
        bound: What limits it: "matrix engine", "memory", "network", "host".
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
        host_spans: Launches of operators in eager mode, and host-device synchronizations.
        exposed: Seconds in which the device waited for the network.
        host: Seconds in which the device waited for the host.
    """

    seconds: float
    spans: tuple[Span, ...]
    host_spans: tuple[Span, ...]
    exposed: float
    host: float


def predict(  # noqa: PLR0913 - the hardware and the mode
    step: StepRecording, generation: str, devices: int, *, estimate: Estimate, fuse: bool, float8: bool = False
) -> Timeline:
    """Return the timeline of a step.

    Args:
        step: Recorded step.
        generation: Generation of the devices.
        devices: Devices per box.
        estimate: End of the hardware's ranges.
        fuse: Whether element-wise operators fuse and graphs are launched as a whole: lazy mode and ``torch.compile``.
        float8: Whether matrix products of weights run in float8, as in Intel's transformer engine.
    """
    device = hardware(generation, estimate)
    kernels = _fused(step.operations) if fuse else _single(step.operations)
    last_reads = {storage: index for index, each in enumerate(step.operations) for storage, _ in each.reads}
    clock = host = exposed = host_wait = network = 0.0
    spans: list[Span] = []
    host_spans: list[Span] = []
    ends: list[float] = []
    for first, kernel in kernels:
        # Collectives that the program issued before this kernel.
        while len(ends) < len(step.collectives) and step.collectives[len(ends)].after <= first:
            network = _issue(step.collectives[len(ends)], devices, device, max(clock, network), spans)
            ends.append(network)
            if not step.collectives[len(ends) - 1].is_async:
                exposed += max(network - clock, 0.0)
                clock = max(clock, network)
        awaited = (each for operation in kernel for each in operation.waits_for if each < len(ends))
        arrival = max((ends[each] for each in awaited), default=0.0)
        exposed += max(arrival - clock, 0.0)
        clock = max(clock, arrival)
        start = host
        if kernel[0].host_sync:
            host = clock + device.sync_seconds
            host_spans.append(_host_span(kernel[0], start, host))
            continue
        if not fuse:
            host += device.launch_seconds * len(kernel)
            host_spans.append(_host_span(kernel[0], start, host))
        if host > clock:
            spans.append(Span("compute", "idle", kernel[0].phase, "", "host", clock, host))
            host_wait += host - clock
            clock = host
        seconds, limit = _kernel_seconds(kernel, device, last_reads if fuse else None, first, float8=float8)
        seconds *= device.step_overhead
        names = kernel[0].name if len(kernel) == 1 else f"{kernel[0].name} and {len(kernel) - 1} more"
        spans.append(
            Span(
                "compute",
                names,
                kernel[0].phase,
                kernel[0].module,
                limit,
                clock,
                clock + seconds,
                sum(each.flops for each in kernel),
            )
        )
        clock += seconds
    for index in range(len(ends), len(step.collectives)):
        network = _issue(step.collectives[index], devices, device, max(clock, network), spans)
    exposed += max(network - clock, 0.0)
    return Timeline(max(clock, network), tuple(spans), tuple(host_spans), exposed, host_wait)


def _issue(collective: Collective, devices: int, device: Hardware, start: float, spans: list[Span]) -> float:
    end = start + collective_seconds(collective, devices, device)
    spans.append(Span("network", collective.name, collective.phase, "", "network", start, end, bytes=collective.bytes))
    return end


def _host_span(operation: Operation, start: float, end: float) -> Span:
    return Span("host", operation.name, operation.phase, operation.module, "host", start, end, frame=operation.frame)


def _single(operations: Sequence[Operation]) -> Iterator[tuple[int, list[Operation]]]:
    for index, operation in enumerate(operations):
        yield index, [operation]


def _fused(operations: Sequence[Operation]) -> Iterator[tuple[int, list[Operation]]]:
    """Yield chains of operators without a matrix product between them, with the index of the first."""
    chain: list[Operation] = []
    first = 0
    for index, operation in enumerate(operations):
        ends_chain = bool(operation.matmul or operation.flops or operation.host_sync or operation.waits_for)
        if ends_chain and chain:
            yield first, chain
            chain = []
        if operation.matmul or operation.flops or operation.host_sync:
            yield index, [operation]
            continue
        if not chain:
            first = index
        chain.append(operation)
    if chain:
        yield first, chain


def _kernel_seconds(
    kernel: list[Operation], device: Hardware, last_reads: dict[int, int] | None, first: int, *, float8: bool
) -> tuple[float, str]:
    if kernel[0].flops:
        return _matrix_seconds(kernel[0], device, float8=float8)
    if last_reads is None:
        return sum(each.bytes for each in kernel) / (device.memory_rate * device.vector_efficiency), "memory"
    size = _chain_bytes(kernel, last_reads, first + len(kernel))
    seconds = size / (device.memory_rate * device.vector_efficiency)
    return seconds * (1 - device.engine_overlap), "memory"


def _matrix_seconds(operation: Operation, device: Hardware, *, float8: bool) -> tuple[float, str]:
    dtype = operation.dtype
    if float8 and operation.matmul is not None and operation.matmul[0] == 1 and "float8" in device.matrix_flops:
        dtype = "float8"
    flops = operation.flops
    if operation.matmul is not None:
        flops = int(flops * padding(operation.matmul, dtype))
    peak = device.matrix_flops.get(dtype) or device.matrix_flops["float32"]
    arithmetic = flops / (peak * device.matrix_efficiency)
    scale = _ITEM_BYTES["float8"] / _ITEM_BYTES["bfloat16"] if dtype == "float8" else 1.0
    memory = operation.bytes * scale / (device.memory_rate * device.vector_efficiency)
    return (arithmetic, "matrix engine") if arithmetic >= memory else (memory, "memory")


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


def _chain_bytes(kernel: list[Operation], last_reads: dict[int, int], end: int) -> int:
    """Return the bytes that a fused chain reads and writes.

    A value that only the chain reads stays on the chip.
    """
    written: set[int] = set()
    reads: dict[int, int] = {}
    writes: dict[int, int] = {}
    read_inside: set[int] = set()
    for operation in kernel:
        for storage, size in operation.reads:
            if storage in written:
                read_inside.add(storage)
            else:
                reads[storage] = max(size, reads.get(storage, 0))
        for storage, size in operation.writes:
            written.add(storage)
            writes[storage] = max(size, writes.get(storage, 0))
    kept = (
        size
        for storage, size in writes.items()
        if storage not in read_inside or storage in reads or last_reads.get(storage, 0) >= end
    )
    return sum(reads.values()) + sum(kept)
