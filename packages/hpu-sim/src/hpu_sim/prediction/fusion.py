"""Kernels of a recorded step: which operators a graph runs as one, and the bytes that they read and write.

One kernel has element-wise operators of which each has the only use of the one before. A value with a second use, such
as one that the backward pass needs, ends it (HabanaAI/Intel_Gaudi3_Software at e6cef1c, ``gc/passes/tpc_fuser.cpp``).
A copy for products alone is a transposed operand, which they read as it is.

A graph ends at ``mark_step``, a collective, a value that the host reads, and an operator that waits for a collective.
Under ``torch.compile``, forward and backward are graphs of their own, and the optimizer's operators are in none. In
eager mode, only the bridge's fused kernels have several operators.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_sim.prediction.recording import Access, Mode, Operation, StepRecording

# Parts of names of operators that are no element-wise ones though their results have the size of their inputs.
_NOT_ELEMENT_WISE: Final = (
    "norm", "softmax", "argm", "topk", "sort", "gather", "scatter", "index", "embedding", "pool", "upsample",
    "interpolate", "roll", "cum", "flip", "scaled_dot_product",
)  # fmt: skip
_COPIES: Final = frozenset({"clone", "contiguous", "copy", "_to_copy"})
# Casts change the size of a value by at most this factor.
_CAST: Final = 4


@dataclass(frozen=True)
class Kernel:
    """Operators that run as one.

    Attributes:
        operations: Operators in order.
        bytes: Bytes that it reads from and writes to the card's memory.
        launches: Operators that the host launches.
        inner: Storages of the values that it keeps to itself, once per value.
    """

    operations: tuple[Operation, ...]
    bytes: int
    launches: int
    inner: tuple[int, ...] = ()


@dataclass(frozen=True)
class Segment:
    """Part of a step that the host launches at once: a graph, or the operators between two events of the host.

    Attributes:
        first: Position of its first operator.
        end: Position after its last operator.
        is_graph: Whether it is a graph, whose operators fuse.
        kernels: Its kernels.
    """

    first: int
    end: int
    is_graph: bool
    kernels: tuple[Kernel, ...]


@dataclass
class _Value:
    """Contents of a storage between two writes, with the positions of the operators that write and read them."""

    storage: int
    producer: int
    consumers: list[int] = field(default_factory=list)


class _Values:
    """Values of a step: for each operator, the numbers of those that it reads and writes, with bytes."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.values: list[_Value] = []
        self.reads: list[tuple[Access, ...]] = []
        self.writes: list[tuple[Access, ...]] = []
        current: dict[int, int] = {}
        for index, each in enumerate(operations):
            reads = []
            for storage, size in each.reads:
                if storage not in current:
                    current[storage] = self._add(storage, -1)
                consumers = self.values[current[storage]].consumers
                if index not in consumers[-1:]:
                    consumers.append(index)
                reads.append((current[storage], size))
            self.reads.append(tuple(reads))
            for storage, _ in each.writes:
                current[storage] = self._add(storage, index)
            self.writes.append(tuple((current[storage], size) for storage, size in each.writes))

    def _add(self, storage: int, producer: int) -> int:
        self.values.append(_Value(storage, producer))
        return len(self.values) - 1


def segments(step: StepRecording, mode: Mode) -> tuple[Segment, ...]:
    """Return the segments of a step."""
    operations = step.operations
    bounds = _graph_bounds(step, mode)
    bounds.update(each.after for each in step.collectives)
    bounds.update(index for index, each in enumerate(operations) if each.waits_for)
    ordered = sorted(each for each in bounds if each <= len(operations))
    values = _Values(operations)
    found = []
    for start, end in itertools.pairwise(ordered):
        is_graph = _is_graph(operations[start], mode)
        groups = _fused(operations, values, start, end) if is_graph else _launched(operations, start, end)
        found.append(Segment(start, end, is_graph, tuple(_kernel(group, operations, values) for group in groups)))
    return tuple(found)


def _is_graph(first: Operation, mode: Mode) -> bool:
    return mode == "lazy" or (mode == "compile" and first.phase != "optimizer")


def _graph_bounds(step: StepRecording, mode: Mode) -> set[int]:
    """Return the positions at which graphs end whatever collectives do."""
    operations, by_phase = step.operations, mode == "compile"
    bounds = {0, len(operations), *(() if by_phase else step.graph_ends)}
    for index, each in enumerate(operations):
        if each.host_sync:
            bounds.update((index, index + 1))
        elif by_phase and index and each.phase != operations[index - 1].phase:
            bounds.add(index)
    return bounds


def _launched(operations: Sequence[Operation], start: int, end: int) -> list[list[int]]:
    """Return the operators of each launch: one, or those of one of the bridge's fused kernels."""
    firsts = [index for index in range(start, end) if operations[index].is_launched or index == start]
    return [list(range(*pair)) for pair in itertools.pairwise([*firsts, end])]


def _fused(operations: Sequence[Operation], values: _Values, start: int, end: int) -> Iterable[list[int]]:
    """Return the operators of each kernel of a graph, in the order in which kernels run."""
    group_of: dict[int, list[int]] = {}
    found: dict[int, list[int]] = {}
    for index in range(start, end):
        each = operations[index]
        group = [index]
        if not each.is_launched and index - 1 in group_of:
            group = [*group_of[index - 1], index]
        elif is_element_wise(each):
            for number, _ in values.reads[index]:
                value = values.values[number]
                before = group_of.get(value.producer, [])
                is_chain = before[-1:] == [value.producer] and value.consumers == [index]
                if is_chain and is_element_wise(operations[value.producer]) and value.producer not in group:
                    group = sorted({*before, *group})
        for member in group:
            if member != index:
                found.pop(member, None)
            group_of[member] = group
        found[index] = group
    return found.values()


def is_element_wise(operation: Operation) -> bool:
    """Return whether each element of an operator's result needs only those of its inputs at the same place."""
    if operation.flops or operation.host_sync or len(operation.writes) != 1:
        return False
    name = operation.name.rpartition(".")[2]
    largest = max((size for _, size in operation.reads), default=0)
    return _CAST * operation.writes[0][1] >= largest and not any(part in name for part in _NOT_ELEMENT_WISE)


def _kernel(group: Sequence[int], operations: Sequence[Operation], values: _Values) -> Kernel:
    """Return a kernel, with the largest part of each value that it reads, and what others need of its results."""
    members = tuple(operations[index] for index in group)
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    for index in group:
        for number, size in values.reads[index]:
            if number not in written:
                read[number] = max(size, read.get(number, 0))
        written.update(values.writes[index])
    inside = set(group)
    inner = {number for number in written if inside.issuperset(values.values[number].consumers or (-1,))}
    kept = sum(size for number, size in written.items() if number not in inner)
    launches = sum(each.is_launched for each in members)
    if len(members) == len(written) == 1 and _is_operand(members[0], values.values[next(iter(written))], operations):
        return Kernel(members, 0, launches)
    storages = tuple(values.values[number].storage for number in inner)
    return Kernel(members, sum(read.values()) + kept, launches, storages)


def _is_operand(operation: Operation, result: _Value, operations: Sequence[Operation]) -> bool:
    """Return whether an operator only copies an operand of products."""
    if operation.name.rpartition(".")[2] not in _COPIES or [size for _, size in operation.reads] != [
        operation.writes[0][1]
    ]:
        return False
    return bool(result.consumers) and all(operations[reader].flops for reader in result.consumers)


def inner_storages(step: StepRecording, mode: Mode) -> dict[int, int]:
    """Return the storages of which no value leaves its kernel, each with the position after its segment.

    A card has no memory for them, if the program frees them before that.
    """
    values = Counter(storage for each in step.operations for storage, _ in each.writes)
    found: Counter[int] = Counter()
    ends: dict[int, int] = {}
    for part in segments(step, mode):
        for kernel in part.kernels:
            found.update(kernel.inner)
            ends |= dict.fromkeys(kernel.inner, part.end)
    return {storage: end for storage, end in ends.items() if found[storage] == values[storage]}


def count_graphs(step: StepRecording, mode: Mode) -> int:
    """Return the number of different graphs of a step, which are compiled once each.

    A collective splits one into parts, which take as long to compile together.
    """
    operations = step.operations
    graphs = {
        tuple(each.key for each in operations[start:end])
        for start, end in itertools.pairwise(sorted(_graph_bounds(step, mode)))
        if end > start and not operations[start].host_sync and _is_graph(operations[start], mode)
    }
    return len(graphs)
