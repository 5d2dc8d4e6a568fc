"""Kernels of a recorded step: which operators a graph runs as one, and the bytes that then leave the chip.

The rules are those of Intel's published graph compiler (HabanaAI/Intel_Gaudi3_Software at e6cef1c, ``synapse/src``):

- The fuser makes one kernel of element-wise operators of which each has the only use of the one before
  (``gc/passes/tpc_fuser.cpp``). A value with a second use, such as one that the backward pass needs, ends it, and so
  does an operator with two results. A softmax or a norm is a kernel of its own.
- Concatenations, and copies that keep the innermost dimension, are views; so are transposes of operands of products.
- A product, what makes its operands and what uses its result run in slices (``pipeline_bundlizer``): values between
  them stay on the chip. The cache of GAUDI3 keeps them for reading, and writes them back.
- A row that is no multiple of a line of the memory costs whole lines (``gc/fcd_ops_utils.cpp``).

A graph ends at ``mark_step``, a collective, a value that the host reads, and an operator that waits for a collective.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from hpu_sim.prediction import matrix_engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_sim.prediction.hardware import Hardware
    from hpu_sim.prediction.recording import Operation, Product, StepRecording

#: Engine that runs a kernel: "matrix" (MME), "vector" (TPC), or "copy" (DMA).
Engine = Literal["matrix", "vector", "copy"]

#: Bytes of a vector.
VECTOR: Final = 256
# Parts of names of operators that are no element-wise ones though their results have the size of their inputs.
_WHOLE: Final = (
    "norm", "softmax", "argm", "topk", "sort", "gather", "scatter", "index", "embedding", "pool", "upsample",
    "interpolate", "roll", "cum", "flip", "scaled_dot_product",
)  # fmt: skip
# Parts of names of operators with special functions, or with random numbers.
_SPECIAL: Final = (
    "exp", "log", "tanh", "gelu", "sigmoid", "silu", "erf", "softmax", "pow", "sqrt", "div", "reciprocal", "norm",
    "sin", "cos", "mish", "softplus", "dropout", "bernoulli", "rand", "uniform", "elu",
)  # fmt: skip
_VIEWS: Final = frozenset({"cat", "stack"})
_COPIES: Final = frozenset({"clone", "contiguous", "copy", "_to_copy"})
# Casts change the size of a value by at most this factor.
_CAST: Final = 4
# Nodes before and after the product of a bundle, products of one operand, and slices of a value
# (`pipeline_bundlizer.h`, `brain_conf.cpp`).
_NODES: Final = 12
_SHARING: Final = 3
_SLICES: Final = 64
# Most inputs and outputs of a kernel (`gc_interface.h`).
_TENSORS: Final = 16
# A row that is a small part of a line shares it with the next ones.
_MOST_PADDING: Final = 4.0


@dataclass(frozen=True)
class Kernel:
    """Operators that run as one.

    Attributes:
        operations: Operators in order.
        engine: Engine that runs it.
        bytes: Bytes that it reads from and writes to the card's memory, in whole lines.
        loaded: Bytes of the vectors that the vector engines load.
        stored: Bytes of those that they store.
        simple: Bytes of the vectors of all operators that need an instruction.
        special: Bytes of those with special functions.
        depends: Kernels of its segment whose results it reads, and whether these stay on the chip.
        bundle: First product of those that are cut into slices with it; itself where it is alone.
        shape: Number of the kernels of the step that do the same work.
        launches: Operators that the host launches.
    """

    operations: tuple[Operation, ...]
    engine: Engine
    bytes: float
    loaded: float = 0.0
    stored: float = 0.0
    simple: float = 0.0
    special: float = 0.0
    depends: tuple[tuple[int, bool], ...] = ()
    bundle: int = 0
    shape: int = 0
    launches: int = 1


@dataclass(frozen=True)
class Segment:
    """Part of a step that the host launches at once: a graph, or the operators between two events of the host.

    Attributes:
        first: Position of its first operator.
        kernels: Its kernels.
    """

    first: int
    kernels: tuple[Kernel, ...]


@dataclass
class _Value:
    """Contents of a storage between two writes, with the positions of the operators that write and read them."""

    producer: int = -1
    consumers: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Access:
    """Value that an operator reads or writes, with its bytes and those of its rows."""

    value: int
    bytes: float
    row: int


class _Values:
    """Values of a step, by the operators that write and read them."""

    def __init__(self, step: StepRecording) -> None:
        self.values: list[_Value] = []
        self.reads: list[tuple[_Access, ...]] = []
        self.writes: list[tuple[_Access, ...]] = []
        current: dict[int, int] = {}
        for index, each in enumerate(step.operations):
            rows = each.rows or (VECTOR * 8,) * (len(each.reads) + len(each.writes))
            sizes = _operand_bytes(each)
            reads = []
            for (storage, size), row, known in zip(each.reads, rows, sizes, strict=False):
                value = current.setdefault(storage, len(self.values))
                if value == len(self.values):
                    self.values.append(_Value())
                if index not in self.values[value].consumers[-1:]:
                    self.values[value].consumers += (index,)
                reads.append(_Access(value, known or size, row))
            writes = []
            for (storage, size), row in zip(each.writes, rows[len(each.reads) :], strict=False):
                current[storage] = len(self.values)
                self.values.append(_Value(index))
                writes.append(_Access(current[storage], size, row))
            self.reads.append(tuple(reads))
            self.writes.append(tuple(writes))

    def skip(self, index: int) -> None:
        """Let the readers of a view's result read its inputs."""
        (written,) = self.writes[index]
        inputs = self.reads[index]
        readers = self.values[written.value].consumers
        total = sum(each.bytes for each in inputs) or 1
        for each in inputs:
            others = tuple(reader for reader in self.values[each.value].consumers if reader != index)
            self.values[each.value].consumers = tuple(sorted({*others, *readers}))
        for reader in set(readers):
            self.reads[reader] = tuple(
                part
                for access in self.reads[reader]
                for part in (
                    (_Access(each.value, access.bytes * each.bytes / total, access.row) for each in inputs)
                    if access.value == written.value
                    else (access,)
                )
            )


def _operand_bytes(operation: Operation) -> tuple[int, ...]:
    """Return the bytes of both operands of a product in float8, which is recorded in another type."""
    if operation.dtype == "float8" and operation.products:
        batch, rows, columns, inner = operation.products[0][:4]
        return (*(0 for _ in operation.reads[:-2]), batch * rows * inner, batch * inner * columns)
    return (0,) * len(operation.reads)


def segments(step: StepRecording, device: Hardware, *, fuse: bool, by_phase: bool) -> tuple[Segment, ...]:
    """Return the segments of a step.

    Args:
        step: Step.
        device: Device, of which only figures without a range matter.
        fuse: Whether operators of a segment fuse.
        by_phase: Whether forward and backward are graphs of their own, as under ``torch.compile``; else ``mark_step``
            ends a graph.
    """
    operations = step.operations
    bounds = _graph_bounds(step, by_phase=by_phase)
    bounds.update(each.after for each in step.collectives)
    bounds.update(index for index, each in enumerate(operations) if each.waits_for)
    ordered = sorted(each for each in bounds if each <= len(operations))
    values = _Values(step)
    shapes: dict[Any, int] = {}
    found = []
    for start, end in itertools.pairwise(ordered):
        groups = _fused(operations, values, start, end) if fuse else _launched(operations, start, end)
        graph = _Graph(groups, operations, values, device, fuse=fuse)
        kernels = tuple(graph.kernel(number, shapes) for number in range(len(groups)))
        found.append(Segment(start, kernels))
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


def _launched(operations: Sequence[Operation], start: int, end: int) -> list[list[int]]:
    """Return the operators of each launch: one, or those of one of the bridge's fused kernels."""
    firsts = [index for index in range(start, end) if operations[index].is_launched or index == start]
    return [list(range(*pair)) for pair in itertools.pairwise([*firsts, end])]


def _fused(operations: Sequence[Operation], values: _Values, start: int, end: int) -> list[list[int]]:
    """Return the operators of each kernel of a graph, in the order in which kernels run."""
    group_of: dict[int, list[int]] = {}
    found: dict[int, list[int]] = {}
    for index in range(start, end):
        each = operations[index]
        if _is_view(each, index, operations, values, (start, end)):
            values.skip(index)
            continue
        group = [index]
        if not each.is_launched and index - 1 in group_of:
            group = [*group_of[index - 1], index]
        elif is_element_wise(each):
            for access in values.reads[index]:
                value = values.values[access.value]
                before = group_of.get(value.producer, [])
                is_fused = before[-1:] == [value.producer] and value.consumers == (index,)
                if is_fused and is_element_wise(operations[value.producer]) and value.producer not in group:
                    joined = sorted({*before, *group})
                    if _count_tensors(joined, values) <= _TENSORS:
                        group = joined
        for member in group:
            if member != index:
                found.pop(member, None)
            group_of[member] = group
        found[index] = group
    return list(found.values())


def _count_tensors(group: Sequence[int], values: _Values) -> int:
    inside = {each.value for member in group[:-1] for each in values.writes[member]}
    return len({each.value for member in group for each in values.reads[member]} - inside) + 1


def is_element_wise(operation: Operation) -> bool:
    """Return whether each element of an operator's result needs only those of its inputs at the same place."""
    if operation.flops or operation.host_sync or len(operation.writes) != 1:
        return False
    name = operation.name.rpartition(".")[2]
    largest = max((size for _, size in operation.reads), default=0)
    return _CAST * operation.writes[0][1] >= largest and not any(part in name for part in _WHOLE)


def _is_view(
    operation: Operation, index: int, operations: Sequence[Operation], values: _Values, bounds: tuple[int, int]
) -> bool:
    """Return whether an operator of a graph moves no data."""
    name = operation.name.rpartition(".")[2]
    if name not in _VIEWS | _COPIES or len(operation.writes) != 1 or not values.reads[index]:
        return False
    start, end = bounds
    readers = values.values[values.writes[index][0].value].consumers
    is_made_here = all(start <= values.values[each.value].producer for each in values.reads[index])
    if not is_made_here and (not readers or max(readers) >= end):
        return False  # Both sides are kept outside of the graph.
    if name in _VIEWS:
        return True
    ((_, read), *_), ((_, written),) = operation.reads, operation.writes
    if read != written:
        return False  # A cast, or an expansion.
    keeps_rows = len(operation.rows) == 2 and operation.rows[0] == operation.rows[1]  # noqa: PLR2004 - input and result
    return keeps_rows or bool(readers and all(operations[reader].products for reader in readers))


class _Graph:
    """Kernels of a segment, and which of them are cut into slices together.

    A bundle has products, what makes their operands, and what uses their results. A kernel is in one bundle, that of
    the first product that reaches it.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        operations: Sequence[Operation],
        values: _Values,
        device: Hardware,
        *,
        fuse: bool,
    ) -> None:
        self._groups, self._operations, self._values, self._device = groups, operations, values, device
        self._kernel_of = {member: number for number, group in enumerate(groups) for member in group}
        self._is_product = [any(_is_product(operations[member]) for member in group) for group in groups]
        # First product of the bundle of each kernel; the kernel itself where it is alone.
        self._bundles = list(range(len(groups)))
        self._taken: set[int] = set()
        for number, is_product in enumerate(self._is_product):
            if fuse and is_product and number not in self._taken:
                self._bundle(number, layers=2 if device.writes_back else 1)

    def _bundle(self, first: int, layers: int) -> None:
        self._take(first, first)
        products = [first]
        for layer in range(layers):
            # Products of the same operand.
            for product in list(products):
                for reader in self._readers(self._values.reads, product):
                    if len(products) < _SHARING + layer and self._is_product[reader] and self._take(reader, first):
                        products.append(reader)
            makers = list(products)
            while makers:
                found = self._makers(makers.pop())
                makers += [each for each in found if not self._is_product[each] and self._take(each, first)]
            users = [each for product in products for each in self._readers(self._values.writes, product)]
            users = [each for each in users if not self._is_product[each] and self._take(each, first)]
            # GAUDI3 goes on from the scores of attention to the product that reads them.
            products = [
                each
                for user in users
                for each in self._readers(self._values.writes, user)
                if layer + 1 < layers and self._is_product[each] and self._take(each, first)
            ]

    def _take(self, number: int, first: int) -> bool:
        if number in self._taken or abs(number - first) > _NODES:
            return False
        self._taken.add(number)
        self._bundles[number] = first
        return True

    def _readers(self, accesses: list[tuple[_Access, ...]], number: int) -> list[int]:
        """Return the kernels that read what a kernel reads, or writes, in order."""
        found = {
            self._kernel_of.get(reader, -1)
            for member in self._groups[number]
            for each in accesses[member]
            for reader in self._values.values[each.value].consumers
        }
        return sorted(each for each in found if each >= 0 and each != number)

    def _makers(self, number: int) -> set[int]:
        found = {
            self._kernel_of.get(self._values.values[each.value].producer, number)
            for member in self._groups[number]
            for each in self._values.reads[member]
        }
        return found - {number}

    def kernel(self, number: int, shapes: dict[Any, int]) -> Kernel:
        """Return a kernel with what it reads and writes, and what of that stays on the chip."""
        members = self._groups[number]
        operations = tuple(self._operations[member] for member in members)
        read, written = self._accesses(members)
        size = loaded = stored = 0.0
        depends: defaultdict[int, list[bool]] = defaultdict(list)
        for each in read:
            producer = self._kernel_of.get(self._values.values[each.value].producer)
            is_cached = self._is_cached(producer, each, number)
            loaded += _in_units(each, VECTOR)
            size += 0 if is_cached else _in_units(each, self._device.line_bytes)
            if producer is not None and producer < number:
                depends[producer].append(is_cached)
        for each in written:
            consumers = self._values.values[each.value].consumers
            outside = [self._kernel_of.get(reader) for reader in consumers if reader not in members]
            if consumers and not outside:
                continue
            stored += _in_units(each, VECTOR)
            # The cache of GAUDI3 writes its lines back.
            may_be_cached = bool(outside) and not self._device.writes_back
            if not (may_be_cached and all(self._is_cached(number, each, reader) for reader in outside)):
                size += _in_units(each, self._device.line_bytes)
        simple, special = _instructions(operations, self._values, members)
        engine: Engine = "vector"
        if self._is_product[number]:
            engine = "matrix"
            size += sum(_extra_fetched_bytes(each, self._device) for each in operations)
            loaded = stored = simple = 0.0
        elif len(operations) == 1 and _is_transpose(operations[0]):
            engine = "matrix" if self._device.generation == "GAUDI3" else "copy"
        edges = tuple((producer, all(cached)) for producer, cached in depends.items())
        products = tuple((each.dtype, each.products, each.flops) for each in operations if each.flops)
        work = engine, size, loaded, stored, simple, special
        shape = shapes.setdefault((work, products), len(shapes))
        launches = sum(each.is_launched for each in operations)
        return Kernel(operations, *work, edges, self._bundles[number], shape, launches)

    def _accesses(self, members: Sequence[int]) -> tuple[Iterable[_Access], Iterable[_Access]]:
        """Return what a kernel reads that others made, the largest part of each value, and what it writes."""
        read: dict[int, _Access] = {}
        written: dict[int, _Access] = {}
        for member in members:
            for each in self._values.reads[member]:
                if each.value not in written and (each.value not in read or read[each.value].bytes < each.bytes):
                    read[each.value] = each
            written.update((each.value, each) for each in self._values.writes[member])
        return read.values(), written.values()

    def _is_cached(self, producer: int | None, access: _Access, reader: int | None) -> bool:
        """Return whether a value that one kernel makes stays on the chip until another one reads it."""
        if producer is None or reader is None or reader == producer:
            return False
        fits = 2 * access.bytes / _SLICES <= self._device.sram_bytes
        return fits and self._bundles[producer] == self._bundles[reader]


def _is_transpose(operation: Operation) -> bool:
    is_copy = operation.name.rpartition(".")[2] in _COPIES and len(operation.rows) == 2  # noqa: PLR2004 - as above
    return is_copy and operation.rows[0] != operation.rows[1] and operation.reads[0][1] == operation.writes[0][1]


def _is_product(operation: Operation) -> bool:
    return bool(operation.flops) and not any(map(_is_depthwise, operation.products[:1]))


def _is_depthwise(product: Product) -> bool:
    """Return whether a product is a convolution of single channels, which the vector engines run."""
    return product.batch > 1 and min(product.rows, product.columns) == 1


def _in_units(access: _Access, unit: int) -> float:
    """Return the bytes of an access in whole lines or vectors."""
    row = min(max(access.row, 1), max(math.ceil(access.bytes), 1))
    return access.bytes * min(-(-row // unit) * unit / row, _MOST_PADDING)


def _instructions(operations: Sequence[Operation], values: _Values, positions: Sequence[int]) -> tuple[float, float]:
    """Return the bytes of vectors with an instruction, and of those with special functions."""
    simple = special = 0.0
    for operation, position in zip(operations, positions, strict=True):
        name = operation.name.rpartition(".")[2]
        size = max(
            (_in_units(each, VECTOR) for each in (*values.reads[position], *values.writes[position])), default=0.0
        )
        if operation.products and "scaled_dot_product" in name:
            # The scores of fused attention stay on the chip; backward has their gradient as well.
            scores, *others = operation.products
            size = 2.0 * scores.batch * scores.rows * scores.columns * (2 if len(others) > 1 else 1)
            special += size
        elif operation.products:
            product = operation.products[0]
            simple += size * math.prod(product[1:4]) / max(product[1:4]) if _is_depthwise(product) else 0.0
        elif any(part in name for part in _SPECIAL):
            special += size
        else:
            simple += size
    return simple, special


def _extra_fetched_bytes(operation: Operation, device: Hardware) -> float:
    """Return the bytes of operands that a product reads more than once."""
    item = matrix_engine.ITEM_BYTES.get(operation.dtype, 4)
    extra = 0.0
    for each in operation.products if "scaled_dot_product" not in operation.name else ():
        sizes = each.rows * each.inner * item, each.inner * each.columns * item
        counts = matrix_engine.reads(each, operation.dtype, device.generation, device.sram_bytes, sizes)
        extra += each.batch * sum((count - 1) * size for count, size in zip(counts, sizes, strict=True))
    return extra


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
