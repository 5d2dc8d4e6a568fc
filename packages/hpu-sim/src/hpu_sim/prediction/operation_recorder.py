"""Recorder of a step's events: operators, copies, collectives and reads of the host, in a run and in a plan.

The device reports them itself (``csrc/events.h``), so what a plan records is what a run does.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from hpu_sim.common import frames
from hpu_sim.device import events, runtime
from hpu_sim.prediction import bridge_kernels, torch_tools
from hpu_sim.prediction.flops import ATTENTION, count_flops
from hpu_sim.prediction.recording import Collective, Operation, StepRecording, host_read
from hpu_sim.prediction.steps import StepTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hpu_sim.device.events import Event
    from hpu_sim.prediction.recording import Phase

# Operators that run nothing on the device, or that are reads of the host.
_WITHOUT_WORK: Final = frozenset(
    {"detach", "alias", "lift_fresh", "_unsafe_view", "empty", "empty_strided", "empty_like", "new_empty", "equal"}
)
# Operators that do not read their first tensor: they overwrite it, or take its shape.
_OVERWRITING: Final = frozenset({
    "bernoulli_", "copy_", "exponential_", "fill_", "full_like", "new_full", "new_ones", "new_zeros", "normal_",
    "ones_like", "rand_like", "randn_like", "random_", "uniform_", "zero_", "zeros_like",
})  # fmt: skip
# Operators that read only the selected rows of their first tensor.
_GATHERS: Final = frozenset({"embedding", "index_select", "gather", "index", "_index", "take"})


class OperationRecorder:
    """Recorder of what operators read, write and compute.

    Attributes:
        step: Step that is recorded.
        steps: Number and end of the program's steps.
        notes: Limits of the recording.
    """

    #: Kinds of the events that it takes while it listens.
    kinds: ClassVar = events.OPERATORS | events.OPTIMIZERS

    def __init__(self) -> None:
        self.native = runtime.native()
        self._functions: dict[tuple[str, str], _Function] = {}
        self._pending: dict[int, int] = {}
        self.step = StepRecording()
        self.notes: set[str] = set()
        # Operators so far of the fused kernel that is being recorded; None outside of one.
        self._parts: int | None = None
        self._newest = 0
        self._optimizers = 0
        self.steps = StepTracker(self.on_step)
        self._phases: list[Phase] = []

    @contextlib.contextmanager
    def listening(self, *, decomposes_attention: bool) -> Iterator[None]:
        """Take the events of this process.

        Args:
            decomposes_attention: Whether torch's attention takes the path that it has on a card, which changes numbers
                and replaces functions of torch.
        """
        with contextlib.ExitStack() as stack:
            if decomposes_attention:
                stack.enter_context(bridge_kernels.applied(self.notes))
            stack.callback(events.subscribe(self.kinds, self.on_event))
            yield

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Count what happens as a part of the step, whatever it is."""
        self._phases.append(phase)
        try:
            yield
        finally:
            self._phases.pop()

    def before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Take an optimizer that is about to step."""

    def after_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Take an optimizer that has stepped."""

    def on_step(self) -> None:
        """Take the end of a step."""

    @property
    def phase(self) -> Phase:
        """Part of the step."""
        if self._optimizers > 0:
            return "optimizer"
        if self._phases:
            return self._phases[-1]
        return "backward" if torch_tools.is_backward() else "forward"

    @property
    def module(self) -> str:
        """Name by which operators are grouped."""
        return ""

    def on_communication(self, tensor: torch.Tensor) -> None:
        """Take a tensor of a collective."""

    def on_read(self, name: str, value: Any) -> None:
        """Take a read of the host, and its value, None for a copy."""

    def forget_pending(self) -> None:
        """Forget collectives of an earlier step whose results nothing has read."""
        self._pending.clear()

    def record_sync(self, frame: str = "") -> None:
        """Record that the host waits for the device."""
        self.step.operations.append(host_read(self.phase, self.module, frame))

    def _function(self, name: str, overload: str) -> _Function:
        found = self._functions.get((name, overload))
        if found is None:
            namespace, plain = name.split("::")
            packet = getattr(getattr(torch.ops, namespace), plain)
            function = getattr(packet, overload or "default")
            formula = flop_registry.get(packet)
            found = _Function(function, str(function), plain, function._schema.arguments, formula)  # noqa: SLF001 - the only list of them
            self._functions[name, overload] = found
        return found

    def look(self) -> None:
        """End the step if the program is above its optimizer's step again."""
        if self.steps.is_ending and self._optimizers == 0 and "optimizer" not in self._phases:
            self.steps.on_event(frames.call_path(frames.backward_caller_frame() or frames.event_frame()))

    def on_event(self, event: Event) -> None:
        """Take an event."""
        self.look()
        kind = event.kind
        if kind in events.OPTIMIZERS:
            self._on_optimizer(kind, event.arguments[0])
        elif kind == "host_sync":
            self.on_read(event.name.rpartition("::")[2], event.results[0] if event.results else None)
        elif kind == "mark_step":
            self.step.graph_ends.append(len(self.step.operations))
        elif kind in {"kernel_begin", "kernel_end"}:
            self._parts = 0 if kind == "kernel_begin" else None
        elif event.operator[0]:
            function = self._function(*event.operator)
            if kind == "collective":
                self._record_collective(function, event)
            else:
                self.record_operation(function, event.arguments, event.results)

    def _on_optimizer(self, kind: str, optimizer: torch.optim.Optimizer) -> None:
        if kind == "optimizer_begin":
            self.before_optimizer(optimizer)
        self._optimizers += 1 if kind in {"optimizer_begin", "closure_end"} else -1
        if kind == "closure_end":
            self.before_optimizer(optimizer)
        elif kind == "optimizer_end":
            self.after_optimizer(optimizer)
            self.steps.on_optimizer_step(optimizer, frames.call_path(frames.event_frame()))

    def record_operation(
        self, function: _Function, values: tuple[Any, ...], results: tuple[Any, ...]
    ) -> Operation | None:
        """Record and return an operator, unless it has no tensor on the device or only makes a view."""
        inputs, outputs, name = _tensors(values), _tensors(results), function.name
        tensors = [*inputs, *outputs]
        if not any(each.device.type == "hpu" for each in tensors):
            return None
        is_read = name == "copy_" and outputs[0].device.type != "hpu"
        if is_read or function.overload.is_view or name in _WITHOUT_WORK:
            return None
        numbers = self.native.storage_numbers(tensors)
        count = len(inputs)
        reads = tuple((number, _bytes_read(each)) for number, each in zip(numbers[:count], inputs, strict=True))
        writes = tuple((number, each.nbytes) for number, each in zip(numbers[count:], outputs, strict=True))
        if name in _GATHERS and reads and writes:
            reads = ((reads[0][0], writes[0][1]), *reads[1:])
        waits: tuple[int, ...] = ()
        if self._pending:
            waits = tuple(sorted({self._pending.pop(each) for each, _ in reads if each in self._pending}))
        if name in _OVERWRITING:
            reads = reads[1:]
        if name == "copy_" and writes[0][0] > self._newest:
            # Into memory that nothing has used yet: torch's `clone` or `to`, which are copies on every device.
            name = "clone" if inputs[0].dtype == inputs[1].dtype else "_to_copy"
        self._newest = max(self._newest, *numbers)
        flops = 0
        if function.computes:
            args, kwargs = function.call(values)
            result = results[0] if len(results) == 1 else results
            flops = count_flops(function.formula, name, args, kwargs, result)
        key = hash((function.text, tuple((each.shape, each.dtype) for each in inputs)))
        first = next((each for each in tensors if each.is_floating_point()), tensors[0])
        operation = Operation(
            name=f"{function.overload.namespace}.{name}",
            phase=self.phase,
            module=self.module,
            dtype=str(first.dtype).removeprefix("torch."),
            flops=flops,
            reads=reads,
            writes=writes,
            key=key,
            waits_for=waits,
            is_launched=not self._parts,
        )
        self.step.operations.append(operation)
        if self._parts is not None:
            self._parts += 1
        return operation

    def _record_collective(self, function: _Function, event: Event) -> None:
        """Record a collective of a process group."""
        tensors = _tensors(event.arguments)
        values = dict(zip((each.name for each in function.arguments), event.arguments, strict=True))
        is_reduction = "reduce_op" in values and "reduce_scatter" in event.name
        if is_reduction and not torch_tools.is_sum(values["reduce_op"]):
            self.notes.add(
                "A reduce-scatter is not a sum, and HCCL refuses averages: call FSDP2's "
                "`set_force_sum_reduction_for_comms(True)` on every sharded module."
            )
        if not any(each.device.type == "hpu" for each in tensors):
            return
        for tensor, number in zip(tensors, self.native.storage_numbers(tensors), strict=True):
            self.on_communication(tensor)
            self._pending[number] = len(self.step.collectives)
        self.step.collectives.append(
            Collective(
                event.name,
                self.phase,
                event.size,
                # A list of tensors is as large as the tensor that it is the parts of.
                max(event.size, *(sum(each.nbytes for each in _tensors((value,))) for value in event.arguments)),
                torch_tools.group_ranks(values["process_group"]),
                bool(values.get("async_op", True)),
                len(self.step.operations),
            )
        )


class _Function(NamedTuple):
    """Operator, and what of it does not depend on a call."""

    overload: Any
    text: str
    name: str
    arguments: Sequence[Any]
    formula: Callable[..., int] | None

    @property
    def computes(self) -> bool:
        """Whether it may have products."""
        return self.formula is not None or ATTENTION in self.name

    def call(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return values as positional and keyword arguments."""
        count = sum(not each.kwarg_only for each in self.arguments)
        names = (each.name for each in self.arguments[count:])
        return values[:count], dict(zip(names, values[count:], strict=True))


def _tensors(values: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the tensors among arguments or results, and in lists of them."""
    found: list[torch.Tensor] = []
    for each in values:
        if isinstance(each, torch.Tensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            found += _tensors(tuple(each))
    return found


def _bytes_read(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's different elements: an expanded dimension is read once."""
    if not tensor.numel() or 0 not in tensor.stride():
        return tensor.nbytes
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(length for length, stride in pairs if stride)
