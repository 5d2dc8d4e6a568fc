"""Data model of a recording: the operators, collectives and memory of the planned steps, without a clock.

A recording depends on the program, its strategy and its precision, and not on the generation of the devices. The memory
and time models read it.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

#: Disclaimer in every output of a prediction.
PREDICTED: Final = "predicted, not measured"

#: Steps of a plan, and of one with DDP. The optimizer makes its state in the first one, DDP its buckets in the second.
STEPS: Final = 2
STEPS_OF_DDP: Final = 3

#: Name of an operation in which the host waits for a value of the device.
HOST_READ: Final = "host_read"

#: Categories of memory, of which :class:`ModuleBytes` has the number.
CATEGORIES: Final = (
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "temporaries",
    "communication buffers",
    "other",
)

Phase = Literal["setup", "forward", "backward", "optimizer"]
#: Way in which the host launches operators.
Mode = Literal["eager", "lazy", "compile"]

#: Storage of an operator's input or output: id and bytes that the operator reads or writes.
Access = tuple[int, int]


@dataclass(slots=True)
class Operation:
    """A call of an operator on the device.

    Attributes:
        name: Operator, such as ``"aten.mm"``.
        phase: Part of the step.
        module: Qualified name of the innermost module; empty outside of modules.
        dtype: Type of the first tensor, such as ``"bfloat16"``.
        flops: Floating-point operations of matrix products, convolutions and attention; 0 for all others.
        reads: Storages read.
        writes: Storages written.
        key: Hash of the operator, its shapes and dtypes; of a read of the host, the number of its line.
        waits_for: Indices of the collectives whose results it reads first.
        host_sync: Whether the host waits for the result.
        frame: Line of the program that waits, as torch's profiler names frames: "train.py(12): training_step".
        is_launched: Whether the host launches it; False for all but the first operator of one of the bridge's fused
            kernels.
    """

    name: str
    phase: Phase
    module: str
    dtype: str
    flops: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    key: int
    waits_for: tuple[int, ...] = ()
    host_sync: bool = False
    frame: str = ""
    is_launched: bool = True

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return sum(size for _, size in self.reads) + sum(size for _, size in self.writes)


@dataclass(slots=True)
class Collective:
    """A call of torch.distributed with tensors of the device.

    Attributes:
        name: Collective, as the simulator names it, such as ``"allreduce"``.
        phase: Part of the step.
        bytes: Bytes that this rank contributes.
        total_bytes: Bytes of the whole tensor: input of a reduction, output of a gather.
        ranks: Ranks of the group.
        is_async: Whether the caller waits later.
        after: Number of operations of the step before it.
    """

    name: str
    phase: Phase
    bytes: int
    total_bytes: int
    ranks: tuple[int, ...]
    is_async: bool
    after: int


class TensorInfo(NamedTuple):
    """Tensor of the batch that was drawn: its type, its shape on one rank, and its size."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


class ModuleBytes(NamedTuple):
    """Memory of a module: its qualified name, the number of a category, and bytes."""

    module: str
    category: int
    bytes: int


@dataclass(frozen=True)
class HostRead:
    """A line that reads a value of the device on the host.

    Attributes:
        location: ``file:line`` of the program.
        source: Text of the line that reads.
        operator: Operator that reads.
        assumed: Value that the plan assumed; empty for a copy to the host.
        count: Number of reads in a step.
        within: ``file:line`` of a library that the program calls, where that reads.
        seconds: Time by which the step would be shorter without it.
    """

    location: str
    source: str
    operator: str
    assumed: str
    count: int
    within: str = ""
    seconds: float = 0.0


@dataclass
class StepRecording:
    """One recorded training step.

    Attributes:
        operations: Operators in order.
        collectives: Collectives in order.
        graph_ends: Numbers of operations after which ``mark_step`` ended a graph.
        inputs: Tensors of the batch.
        peaks: Memory of modules where that of a part of the step is highest.
    """

    operations: list[Operation] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    graph_ends: list[int] = field(default_factory=list)
    inputs: tuple[TensorInfo, ...] = ()
    peaks: dict[Phase, tuple[ModuleBytes, ...]] = field(default_factory=dict)

    @property
    def flops(self) -> int:
        """Floating-point operations of the step."""
        return sum(operation.flops for operation in self.operations)

    def without_read(self, key: int) -> StepRecording:
        """Return the step without the reads of a line."""
        removed = [index for index, each in enumerate(self.operations) if each.host_sync and each.key == key]

        def moved(position: int) -> int:
            return position - bisect.bisect_left(removed, position)

        return replace(
            self,
            operations=[each for each in self.operations if not (each.host_sync and each.key == key)],
            collectives=[replace(each, after=moved(each.after)) for each in self.collectives],
            graph_ends=list(map(moved, self.graph_ends)),
        )


@dataclass(kw_only=True)
class Program:
    """Program as one rank of a job.

    Attributes:
        devices: Ranks per box.
        world_size: Number of ranks.
        strategy: Name of the strategy.
        precision: Precision of the Trainer or of the program.
        lazy: Whether the bridge is in lazy mode.
        compiled: Whether the module is compiled with ``torch.compile``.
        accumulate: Micro-batches per step of the optimizer, of which the recorded step has all.
        parameters: Number of parameters of this rank's modules.
        trainable: Number of those that have gradients.
        host_reads: Lines that read values.
        notes: Limits of what is predicted of it.
    """

    devices: int = 1
    world_size: int = 1
    strategy: str = "single"
    precision: str = "32-true"
    lazy: bool = False
    compiled: bool = False
    accumulate: int = 1
    parameters: int = 0
    trainable: int = 0
    host_reads: list[HostRead] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def mode(self) -> Mode:
        """How the host launches operators."""
        return "lazy" if self.lazy else "compile" if self.compiled else "eager"

    @property
    def nodes(self) -> int:
        """Number of boxes."""
        return self.world_size // self.devices


@dataclass(kw_only=True)
class Recording(Program):
    """Recording of a program as the first rank of a job.

    Attributes:
        command: Program and arguments.
        blocks: Class and number of the repeated blocks of the model, which can be recomputed.
        setup: What happened before the first step.
        steps: The planned steps.
        lines: ``file:line`` of the program by the module that it runs.
        replicas: Ranks with batches of their own; 0 for all.
        sequence_parts: Ranks that share each sequence, of which the recorded batch is a part.
    """

    command: tuple[str, ...] = ()
    blocks: tuple[str, int] = ("", 0)
    setup: StepRecording = field(default_factory=StepRecording)
    steps: list[StepRecording] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)
    replicas: int = 0
    sequence_parts: int = 1

    @property
    def steady(self) -> StepRecording:
        """The last planned step, in which the optimizer has its state already."""
        return self.steps[-1]

    @property
    def batch_size(self) -> int:
        """Samples of a rank's batch; 0 if it is not known."""
        return next((each.shape[0] for each in self.steady.inputs if each.shape), 0)
