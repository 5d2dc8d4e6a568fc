"""Device of a plan: the simulated device whose kernels never run, and the recorder of what a program does with it."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_sim.common import frames
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.memory_recorder import MemoryRecorder
from hpu_sim.prediction.operation_recorder import OperationRecorder
from hpu_sim.prediction.recording import HostRead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.device.events import Event
    from hpu_sim.prediction.recording import Operation, Phase, StepRecording

# A loop that waits for a value to change would never end, because the value is made up.
_MAX_READS_OF_A_LINE: Final = 10_000
# Why an operator cannot be planned, by the kind of its event.
_UNPLANNABLE: Final = {
    "dynamic": "the shape of the result of {} depends on data, which a plan does not have (and on a card it is a host "
    "sync and a new graph): use a mask, torch.where or a fixed number of elements",
    "shapeless": "the operator {} has no shape function: register one with torch.library.register_fake",
}
# Operators between two reports of progress.
_OPERATORS_PER_REPORT: Final = 1000


class PlanDevice(OperationRecorder):
    """Recorder of operators, collectives, memory and reads by module, on a device whose kernels never run."""

    def __init__(
        self,
        on_root_module: Callable[[torch.nn.Module], None],
        on_step: Callable[[], None],
        on_progress: Callable[[], None],
    ) -> None:
        super().__init__()
        self._on_step = on_step
        self._on_progress = on_progress
        self._calls = 0
        self.is_recording = False
        self.host_reads: dict[tuple[str, str], HostRead] = {}
        self.error: PlanError | None = None
        self.optimizer_location = ""
        self.is_float8 = False
        self.lines: dict[str, str] = {}
        self.memory = MemoryRecorder(self.native, on_root_module)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let no kernel run, and record."""
        self.native.set_never(True, _is_large_on_host)
        try:
            with self.listening(decomposes_attention=True), self.memory.following_modules():
                yield
        finally:
            self.native.set_never(False, bool)

    def begin(self, step: StepRecording) -> None:
        """Record into a step from now on."""
        self.end()
        self.memory.finish(self.step)
        self.step = step
        self.memory.begin(step)
        self.forget_pending()
        self.is_recording = True
        self.host_reads.clear()

    def end(self) -> None:
        """Stop recording the step."""
        self._take_memory()
        self.is_recording = False

    def finish(self) -> None:
        """Complete the memory of the last step."""
        self.end()
        self.memory.finish(self.step)

    @property
    def phase(self) -> Phase:
        """Part of the step."""
        return super().phase if self.is_recording else "setup"

    @property
    def module(self) -> str:
        """Qualified name of the innermost module that runs."""
        return self.memory.module

    def _take_memory(self) -> None:
        self.memory.take(self.step, self.phase)

    def before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the gradients that the optimizer reads as such."""
        self._take_memory()
        self.memory.mark_gradients(optimizer)

    def after_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Count what the optimizer keeps as its state."""
        self.optimizer_location = self.optimizer_location or frames.program_line()
        self.memory.take(self.step, "optimizer" if self.is_recording else "setup")
        self.memory.mark_states(optimizer)

    def on_step(self) -> None:
        """End a step of a program that does not mark them."""
        self._on_step()

    def record_operation(self, function: Any, values: tuple[Any, ...], results: tuple[Any, ...]) -> Operation | None:
        """Record an operator, and the line of the program that runs its module."""
        self._calls += 1
        if self._calls % _OPERATORS_PER_REPORT == 0:
            self._on_progress()
        operation = super().record_operation(function, values, results) if self.is_recording else None
        if operation is not None:
            if self.is_float8 and operation.matmul is not None:
                operation.dtype = "float8"
            if operation.phase == "forward" and operation.module not in self.lines:
                self.lines[operation.module] = frames.program_line()
        self._take_memory()
        if function.name == "copy_" and values[0].dtype != values[1].dtype and self.phase != "optimizer":
            self.memory.mark_copy(values[1], values[0])
        return operation

    def on_event(self, event: Event) -> None:
        """Take an event.

        Raises:
            PlanError: If the result of an operator has no shape in a plan.
        """
        if event.kind in _UNPLANNABLE:
            raise self._fail(_UNPLANNABLE[event.kind].format(self._function(*event.operator).text))
        super().on_event(event)

    def _fail(self, problem: str) -> PlanError:
        self.error = PlanError(problem, frames.program_line())
        return self.error

    def on_read(self, name: str, value: Any) -> None:
        """Record that the program reads a tensor's data on the host, and the assumed value, None for a copy.

        Raises:
            PlanError: If the same line has read too often.
        """
        if not self.is_recording:
            return
        frame = frames.program_frame()
        found = None if frame is None else frames.describe_frame(frame, frame.f_lineno)
        location, source = ("", "") if found is None else (f"{found.file}:{found.line}", found.source)
        assumed = "" if value is None else repr(value)
        count = self.host_reads[location, name].count + 1 if (location, name) in self.host_reads else 1
        self.host_reads[location, name] = HostRead(location, source, name, assumed, count)
        if count > _MAX_READS_OF_A_LINE:
            msg = (
                f"the line reads a value more than {_MAX_READS_OF_A_LINE} times, and a plan has no values: it assumed "
                f"{assumed} each time. Do not plan a loop whose end depends on a value"
            )
            raise self._fail(msg)
        self.record_sync(frames.name_in_trace(frame))

    def on_communication(self, tensor: torch.Tensor) -> None:
        """Count the memory of a collective's tensor as communication."""
        self._take_memory()
        self.memory.mark_communication(tensor)


def _is_large_on_host() -> bool:
    """Return whether the constructor of a module, or DeepSpeed for what it keeps on the host, makes a tensor."""
    frame: Any = sys._getframe(1)  # noqa: SLF001 - `inspect` is too slow for every factory
    is_caller = True
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), torch.nn.Module):
            return True
        package = frames.package(frame)
        if is_caller and package == "deepspeed":
            return True
        is_caller = is_caller and package in {"hpu_sim", "torch"}
        frame = frame.f_back
    return False
