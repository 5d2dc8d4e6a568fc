"""Recorder of a step: operators, copies, collectives and reads of the host, in a run and in a plan.

The device reports them itself (``csrc/events.h``), so what a plan records is what a run does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_sim.common import frames
from hpu_sim.device import events, runtime
from hpu_sim.prediction import attention, torch_tools
from hpu_sim.prediction.operators import ATTENTION, Function, describe, tensors_of
from hpu_sim.prediction.recording import HOST_READ, Collective, Operation, StepRecording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpu_sim.device.events import Event
    from hpu_sim.prediction.recording import Phase
    from hpu_sim.prediction.steps import StepTracker

_ADAMW: Final = (
    "`AdamW` of torch is several operators on a card, each with a launch. `FusedAdamW` of the bridge is one kernel: "
    "`HPUKernels(optimizer=True)` of hpu-kernels."
)
_NORM: Final = (
    "`rsqrt`, as RMS norms have it, is one of several operators on a card. `FusedRMSNorm` of the bridge is one kernel: "
    "`HPUKernels(norm=True)` of hpu-kernels."
)
_ROTARY: Final = (
    "Features of which a half is negated, as in rotary embeddings, are several operators on a card. "
    "`RotaryPosEmbeddingHelperV1` of the bridge is one kernel: `HPUKernels(rotary=True)` of hpu-kernels."
)


class Recorder:
    """Recorder of what operators read, write and compute.

    Args:
        steps: Tracker of the program's steps, which another listener may share.

    Attributes:
        step: Step that is recorded.
        steps: Number and end of the program's steps.
        notes: Limits of the recording.
    """

    def __init__(self, steps: StepTracker) -> None:
        self.native = runtime.native()
        self._functions: dict[tuple[str, str], Function] = {}
        self._pending: dict[int, int] = {}
        self.step = StepRecording()
        self.steps = steps
        self.notes: set[str] = set()
        # Operators so far of the fused kernel that is being recorded; None outside of one.
        self._parts: int | None = None
        # Type of the products of that kernel, if it is not their tensors'.
        self._dtype = ""
        # Mask of the dropout that is being recorded, and the number of its next operator.
        self._dropout = 0, -1
        self._attention = attention.Decomposition()
        self._last_number = 0
        self._optimizers = 0
        # The last one that has begun a step: one that another steps by, as hpu-kernels does, is within that one's.
        self._optimizer: torch.optim.Optimizer | None = None
        self._phases: list[Phase] = []

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Count what happens as a part of the step, whatever it is."""
        self._phases.append(phase)
        try:
            yield
        finally:
            self._phases.pop()

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
        """Name by which operators are grouped: the line of the program."""
        return frames.program_line()

    def on_read(self, name: str, value: Any) -> None:
        """Record that the host waits for a value, or for a copy, where that is None."""
        del name, value
        self.record_sync()

    def begin(self) -> None:
        """Begin a step, which waits for no collective of an earlier one."""
        self._pending.clear()
        self._attention = attention.Decomposition()
        self.step = StepRecording()

    def record_sync(self, frame: str = "", key: int = 0) -> None:
        """Record that the host waits for the device in a line, of which the key is a number."""
        read = Operation(HOST_READ, self.phase, self.module, "", 0, (), (), key, host_sync=True, frame=frame)
        self.step.operations.append(read)

    def _function(self, name: str, overload: str) -> Function:
        found = self._functions.get((name, overload))
        if found is None:
            namespace, plain = name.split("::")
            packet = getattr(getattr(torch.ops, namespace), plain)
            found = self._functions[name, overload] = Function.of(getattr(packet, overload or "default"))
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
            self._parts, self._dtype = (0 if kind == "kernel_begin" else None), event.detail
        elif event.operator[0]:
            function = self._function(*event.operator)
            if kind == "collective":
                self._record_collective(function, event)
            else:
                self.record_operation(function, event.arguments, event.results)

    def _on_optimizer(self, kind: str, optimizer: torch.optim.Optimizer) -> None:
        if kind == "optimizer_begin":
            self._optimizer = optimizer
        # Not below 0, where recording began within one.
        self._optimizers = max(self._optimizers + (1 if kind in {"optimizer_begin", "closure_end"} else -1), 0)
        if kind == "optimizer_end" and self._optimizer is optimizer and type(optimizer) is torch.optim.AdamW:
            self.notes.add(_ADAMW)

    def record_operation(self, function: Function, values: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Record an operator, unless it has no tensor on the device or only makes a view.

        Attention is recorded as a card runs it, unless it is a part of the bridge's kernel.
        """
        inputs, outputs = tensors_of(values), tensors_of(results)
        tensors = [*inputs, *outputs]
        is_read = function.name == "copy_" and outputs[0].device.type != "hpu"
        if is_read or not any(each.device.type == "hpu" for each in tensors):
            return
        numbers = self.native.storage_numbers(tensors)
        if ATTENTION in function.name and self._parts is None:
            separate = self._attention.operations(function, values, numbers)
            if separate:
                self.notes.add(attention.DECOMPOSED)
                for each in separate:
                    self.append(each)
                return
        operation = describe(function, function.call(values), (inputs, outputs), numbers, results)
        if operation is None:
            return
        if function.name == "copy_" and operation.writes[0][0] > self._last_number:
            # Into memory that nothing has used yet: torch's `clone` or `to`, which are copies on every device.
            operation.name = "aten.clone" if inputs[0].dtype == inputs[1].dtype else "aten._to_copy"
        if operation.flops and self._dtype:
            operation.dtype = self._dtype
        self._last_number = max(self._last_number, *numbers)
        operation.is_launched = not self._parts and not self._is_part_of_dropout(function.name, numbers)
        # Not in what a library tries out before the training, such as hpu-kernels.
        if self._parts is None and self.phase == "forward" and torch.is_grad_enabled():
            self._note_chains(function.name)
        self.append(operation)
        if self._parts is not None:
            self._parts += 1

    def _note_chains(self, name: str) -> None:
        """Note that an operator is one of several for which the bridge has one kernel."""
        if name in {"rsqrt", "_fused_rms_norm"}:
            self.notes.add(_NORM)
        elif name == "cat" and self.step.operations and self.step.operations[-1].name == "aten.neg":
            self.notes.add(_ROTARY)

    def append(self, operation: Operation) -> None:
        """Record an operator of this part of the step."""
        operation.phase, operation.module = self.phase, self.module
        if self._pending:
            used = {number for number, _ in (*operation.reads, *operation.writes)}
            operation.waits_for = tuple(sorted({self._pending.pop(each) for each in used if each in self._pending}))
        self.step.operations.append(operation)

    def _is_part_of_dropout(self, name: str, numbers: Sequence[int]) -> bool:
        """Return whether an operator scales or applies the mask that the operator before has drawn or scaled."""
        mask, index = self._dropout[0], len(self.step.operations)
        is_part = index == self._dropout[1] and mask in numbers and name in {"div_", "mul", "mul_"}
        if name == "bernoulli_" or is_part:
            self._dropout = (mask if is_part else numbers[0]), index + 1
        return is_part

    def _record_collective(self, function: Function, event: Event) -> None:
        """Record a collective of a process group."""
        tensors = tensors_of(event.arguments)
        values = function.named(event.arguments)
        is_reduction = "reduce_op" in values and "reduce_scatter" in event.name
        if is_reduction and not torch_tools.is_sum(values["reduce_op"]):
            self.notes.add(
                "A reduce-scatter is not a sum, and HCCL refuses averages: call FSDP2's "
                "`set_force_sum_reduction_for_comms(True)` on every sharded module."
            )
        if not any(each.device.type == "hpu" for each in tensors):
            return
        self._pending |= dict.fromkeys(self.native.storage_numbers(tensors), len(self.step.collectives))
        self.step.collectives.append(
            Collective(
                event.name,
                self.phase,
                event.size,
                # A list of tensors is as large as the tensor that it is the parts of.
                max(event.size, *(sum(each.nbytes for each in tensors_of((value,))) for value in event.arguments)),
                torch_tools.group_ranks(values["process_group"]),
                bool(values.get("async_op", True)),
                len(self.step.operations),
            )
        )
