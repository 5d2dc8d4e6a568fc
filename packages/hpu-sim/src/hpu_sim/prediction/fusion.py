"""Kernels of a recorded step: which operators a graph runs as one, and the bytes that then leave the chip.

The compiler of a graph makes one kernel of element-wise operators that follow each other. A kernel ends

- at a product, which the matrix engine runs,
- where the graph ends: at ``mark_step``, a collective, or a value that the host reads,
- at an operator that waits for a collective,
- after an operator that moves elements, or normalizes over the batch, if its input is larger than the chip's memory,
- before an operator that reads the reduction of a whole tensor, if what was reduced no longer fits in that memory.

A softmax, a norm of rows, or the sum of a dimension needs one row at a time, which stays on the chip.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpu_sim.prediction.recording import Operation, StepRecording

# Parts of the names of operators that move the elements of their input, or normalize over all of a batch.
_WHOLE_INPUT: Final = (
    "batch_norm", "argm", "topk", "sort", "gather", "scatter", "index", "embedding", "pool", "cat", "upsample",
    "interpolate", "roll",
)  # fmt: skip
# An operator whose input is so many times as large as its result reduces a whole tensor, and not rows of it.
_WHOLE_TENSOR: Final = 1 << 16


@dataclass(frozen=True)
class Kernel:
    """Operators that run as one.

    Attributes:
        first: Position of its first operator in the step.
        operations: Operators in order.
        bytes: Bytes that it reads from and writes to the card's memory.
        vector_bytes: Bytes that pass through the vector engines, operator by operator.
    """

    first: int
    operations: tuple[Operation, ...]
    bytes: int
    vector_bytes: int


@dataclass(frozen=True)
class Segment:
    """Part of a step that the host launches at once: a graph, or the operators between two events of the host.

    Attributes:
        first: Position of its first operator.
        end: Position after its last one.
        kernels: Its kernels.
    """

    first: int
    end: int
    kernels: tuple[Kernel, ...]


def needs_whole_input(operation: Operation) -> bool:
    """Return whether any element of an operator's result may need any of its input."""
    name = operation.name.rpartition(".")[2]
    return any(part in name for part in _WHOLE_INPUT)


def reduces_whole_tensor(operation: Operation) -> bool:
    """Return whether the result of an operator is a few elements of much input."""
    read = max((size for _, size in operation.reads), default=0)
    written = max((size for _, size in operation.writes), default=0)
    return read >= _WHOLE_TENSOR * written > 0


def segments(step: StepRecording, *, fuse: bool, by_phase: bool, sram: int) -> tuple[Segment, ...]:
    """Return the segments of a step.

    Args:
        step: Recorded step.
        fuse: Whether operators of a segment fuse.
        by_phase: Whether forward and backward are graphs of their own, as under ``torch.compile``; else ``mark_step``
            ends a graph.
        sram: Bytes of memory on the chip.
    """
    operations = step.operations
    bounds = _graph_bounds(step, by_phase=by_phase)
    bounds.update(each.after for each in step.collectives)
    bounds.update(index for index, each in enumerate(operations) if each.waits_for)
    ordered = sorted(each for each in bounds if each <= len(operations))
    last_reads = {storage: index for index, each in enumerate(operations) for storage, _ in each.reads}
    found = []
    for start, end in itertools.pairwise(ordered):
        part = operations[start:end]
        kernels = tuple(_fused(part, start, last_reads, sram) if fuse else _launched(part, start, last_reads))
        found.append(Segment(start, end, kernels))
    return tuple(found)


def _graph_bounds(step: StepRecording, *, by_phase: bool) -> set[int]:
    """Return the positions at which graphs end whatever collectives do: see :func:`segments`."""
    operations = step.operations
    bounds = {0, len(operations), *(() if by_phase else step.graph_ends)}
    for index, each in enumerate(operations):
        if each.host_sync:
            bounds.update((index, index + 1))
        elif by_phase and index and each.phase != operations[index - 1].phase:
            bounds.add(index)
    return bounds


def _launched(operations: Sequence[Operation], start: int, last_reads: dict[int, int]) -> Iterator[Kernel]:
    """Yield a kernel per launch: an operator, or those of one of the bridge's fused kernels."""
    firsts = [index for index, each in enumerate(operations) if each.is_launched or each.flops or not index]
    for first, end in itertools.pairwise([*firsts, len(operations)]):
        yield _chained(operations[first:end], start + first, last_reads)


def _chained(chain: Sequence[Operation], first: int, last_reads: dict[int, int]) -> Kernel:
    """Return the kernel of operators that follow each other from a position of the step on."""
    size = chain_bytes(chain, last_reads, first + len(chain))
    return Kernel(first, tuple(chain), size, sum(map(_vector_bytes, chain)))


def _fused(operations: Sequence[Operation], start: int, last_reads: dict[int, int], sram: int) -> Iterator[Kernel]:
    chain: list[Operation] = []
    reduced: set[int] = set()
    first = start
    held = 0

    for index, each in enumerate(operations, start):
        is_alone = bool(each.flops or each.host_sync)
        needs_reduced = held > sram and any(storage in reduced for storage, _ in each.reads)
        if chain and (is_alone or needs_reduced):
            yield _chained(chain, first, last_reads)
            chain, held = [], 0
            reduced.clear()
        if is_alone:
            yield Kernel(index, (each,), each.bytes, 0)
            continue
        if not chain:
            first = index
        chain.append(each)
        if reduces_whole_tensor(each):
            reduced.update(storage for storage, _ in each.writes)
            held += max(size for _, size in each.reads)
        elif needs_whole_input(each):
            held += max((size for _, size in each.reads), default=0)
            if held > sram:
                yield _chained(chain, first, last_reads)
                chain, held = [], 0
                reduced.clear()
    if chain:
        yield _chained(chain, first, last_reads)


def _vector_bytes(operation: Operation) -> int:
    """Return the bytes of the largest value of an operator, which passes through the vector engines once."""
    if operation.flops:
        return 0
    return max((size for _, size in (*operation.reads, *operation.writes)), default=0)


def chain_bytes(kernel: Sequence[Operation], last_reads: dict[int, int], end: int) -> int:
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


def count_graphs(step: StepRecording, *, is_lazy: bool) -> int:
    """Return the number of different graphs of a step, which are compiled once each.

    They end at ``mark_step`` and at reads of the host; under ``torch.compile`` at the ends of directions and at reads.
    A collective splits one into parts, which take as long to compile together.
    """
    operations = step.operations
    graphs = {
        tuple(each.key for each in operations[start:end])
        for start, end in itertools.pairwise(sorted(_graph_bounds(step, by_phase=not is_lazy)))
        if end > start and not operations[start].host_sync
        # Under `torch.compile`, the optimizer's operators are not compiled.
        if is_lazy or operations[start].phase != "optimizer"
    }
    return len(graphs)
