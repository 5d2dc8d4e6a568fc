"""Recorder of a program that is planned: its operators, memory and reads on a device whose kernels never run."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_sim.common import frames
from hpu_sim.device import events, runtime
from hpu_sim.plan import modules, session
from hpu_sim.plan.batches import Batches
from hpu_sim.plan.errors import PlanComplete, PlanError
from hpu_sim.plan.memory_recorder import MemoryRecorder
from hpu_sim.prediction import fusion
from hpu_sim.prediction.operators import tensors_of
from hpu_sim.prediction.recorder import Recorder
from hpu_sim.prediction.recording import STEPS, STEPS_OF_DDP, HostRead, Recording
from hpu_sim.prediction.steps import StepTracker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpu_sim.device.events import Event
    from hpu_sim.plan.options import Options
    from hpu_sim.prediction.operators import Function
    from hpu_sim.prediction.recording import Operation, Phase

# A loop that waits for a value to change would never end, because the value is made up.
_MAX_READS_OF_A_LINE: Final = 10_000
# Why an operator cannot be planned, by the kind of its event.
_UNSUPPORTED: Final = {
    "dynamic": "the shape of the result of {} depends on data, which a plan does not have (and on a card it is a host "
    "sync and a new graph): use a mask, torch.where or a fixed number of elements",
    "shapeless": "the operator {} has no shape function: register one with torch.library.register_fake",
}


class PlanRecorder(Recorder):
    """Recorder of one program, from its setup to the last planned step.

    Args:
        options: Options of the plan.
        command: What the recording names as the program.

    Attributes:
        recording: What is known so far.
        has_ddp: Whether the model is wrapped in DistributedDataParallel or DeepSpeed's engine. It is as in later steps
            from the third one on: DDP makes its buckets in the second, and DeepSpeed's timer then waits in each.
        fits: Whether the program has called ``Trainer.fit``.
        batches: What the program draws from its DataLoaders.
        modules: The module that runs.
        memory: Memory of the device.
        error: Error of the plan that an operator of the program has raised.
    """

    def __init__(self, options: Options, command: Sequence[str] = ()) -> None:
        super().__init__(StepTracker(self.on_step))
        self.options = options
        self.recording = Recording(
            command=tuple(command),
            devices=options.devices,
            world_size=options.world_size,
            lazy=runtime.active_config().lazy,
            compiled=options.compiled,
        )
        if options.compiled and self.recording.lazy:
            raise PlanError("`--compile` needs eager mode, got lazy mode: set PT_HPU_LAZY_MODE=0")
        self.step = self.recording.setup
        self.modules = modules.ModuleTracker(self._on_root_module)
        self.memory = MemoryRecorder(self.native, self.modules)
        self.batches = Batches()
        self.has_ddp = False
        self.fits = False
        self.error: PlanError | None = None
        self._is_marked = False
        self._is_recording = False
        self._host_reads: dict[tuple[str, str, str], HostRead] = {}
        self._optimizer_location = ""

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let no kernel run, and record."""
        session.recorder = self
        self.native.set_planning(True, _is_large_on_host)
        end = events.subscribe(events.OPERATORS | events.OPTIMIZERS, self.on_event)
        try:
            with self.modules.track():
                yield
        finally:
            end()
            self.native.set_planning(False, bool)
            session.recorder = None

    def start(self) -> None:
        """Begin the first step, whatever the optimizers of the program did before."""
        self.recording.steps.clear()
        self.batches.clear()
        self._begin_step()

    def _begin_step(self) -> None:
        self._stop()
        self.begin()
        self.memory.begin(self.step)
        self._is_recording = True
        self._host_reads.clear()

    def _stop(self) -> None:
        """Record no step, and complete the memory of the last one."""
        self._take_memory()
        self._is_recording = False
        self.memory.finish(self.step, fusion.inner_storages(self.step, self.recording.mode))

    def _end_step(self) -> None:
        self._take_memory()
        self._is_recording = False
        self.recording.accumulate = max(len(self.batches), 1)
        self.step.inputs = self.batches.inputs
        self.batches.clear()
        # Of earlier steps, a plan needs the memory and the collectives alone.
        for earlier in self.recording.steps:
            earlier.operations.clear()
        self.recording.steps.append(self.step)

    def on_step(self) -> None:
        """Take the end of a step of a program that does not mark them.

        Without a Trainer, the first one counts as setup: its beginning is not known.
        """
        if self._is_marked:
            return
        if self.step is self.recording.setup:
            self.start()
        elif self.step.operations:
            self._end_step()
            self._raise_if_complete()
            self._begin_step()

    def _raise_if_complete(self) -> None:
        if len(self.recording.steps) >= (STEPS_OF_DDP if self.has_ddp else STEPS):
            raise PlanComplete

    @contextlib.contextmanager
    def marked_step(self) -> Iterator[None]:
        """Take what the program does within as a step; its optimizers end none from now on."""
        if not self._is_marked:
            self._is_marked = True
            self.recording.steps.clear()
        self._begin_step()
        yield
        self._end_step()
        self._raise_if_complete()

    @property
    def phase(self) -> Phase:
        """Part of the step."""
        return super().phase if self._is_recording else "setup"

    @property
    def module(self) -> str:
        """Qualified name of the innermost module that runs."""
        return self.modules.current

    def _take_memory(self, before: int | None = None) -> None:
        self.memory.take(self.step, self.phase, before)

    def append(self, operation: Operation) -> None:
        """Record an operator, and the line of the program that runs its module."""
        super().append(operation)
        if operation.phase == "forward" and operation.module not in self.recording.lines:
            self.recording.lines[operation.module] = frames.program_line()

    def record_operation(self, function: Function, values: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Record an operator, and the memory that it takes or gives back."""
        before = len(self.step.operations)
        if self._is_recording:
            super().record_operation(function, values, results)
        self._take_memory(before)
        if function.name == "copy_" and values[0].dtype != values[1].dtype and self.phase != "optimizer":
            self.memory.mark_copy(values[1], values[0])

    def on_event(self, event: Event) -> None:
        """Take an event.

        Raises:
            PlanError: If the result of an operator has no shape in a plan.
        """
        self.look()
        kind = event.kind
        if kind in _UNSUPPORTED:
            raise self._fail(_UNSUPPORTED[kind].format(self._function(*event.operator).text))
        if kind == "assumed":
            name = self._function(*event.operator).text
            place = frames.program_line() or modules.row_of(self.module)
            self.notes.add(f"{place}: {name} depends on data, and is planned {event.detail}.")
        elif kind in {"optimizer_begin", "closure_end"}:
            self._take_memory()
            self.memory.mark_gradients(event.arguments[0])
        elif kind == "collective":
            self._take_memory()
            for each in tensors_of(event.arguments):
                self.memory.mark_communication(each)
        super().on_event(event)
        if kind == "optimizer_end":
            self._end_optimizer(event.arguments[0])

    def _end_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Count what an optimizer keeps as its state."""
        self._optimizer_location = self._optimizer_location or frames.program_line()
        self.memory.take(self.step, "optimizer" if self._is_recording else "setup")
        self.memory.mark_states(optimizer)
        self.steps.on_optimizer_step(optimizer, frames.call_path(frames.event_frame()))

    def _fail(self, problem: str) -> PlanError:
        self.error = PlanError(problem, frames.program_line())
        return self.error

    def on_read(self, name: str, value: Any) -> None:
        """Record that the program reads a tensor's data on the host, and the assumed value, None for a copy.

        Raises:
            PlanError: If the same line has read too often.
        """
        if not self._is_recording:
            return
        frame = frames.program_frame()
        library = frames.library_frame()
        location = modules.row_of(self.module) if frame is None else frame.location
        within, source = "" if library is None else library.location, getattr(library or frame, "source", "")
        assumed = "" if value is None else repr(value)
        key = location, within, name
        count = self._host_reads[key].count + 1 if key in self._host_reads else 1
        self._host_reads[key] = HostRead(location, source, name, assumed, count, within)
        if count > _MAX_READS_OF_A_LINE:
            raise self._fail(
                f"the line reads a value more than {_MAX_READS_OF_A_LINE} times, and a plan has no values: it assumed "
                f"{assumed} each time. Do not plan a loop whose end depends on a value"
            )
        self.record_sync("" if frame is None else frame.name_in_trace, list(self._host_reads).index(key))

    def _on_root_module(self, module: torch.nn.Module) -> None:
        """Name a module that is called outside of another one; describe the first of a program without a Trainer."""
        from torch.nn.parallel import DistributedDataParallel

        if isinstance(module, DistributedDataParallel):
            self.has_ddp = True
        if self.recording.parameters == 0 and not self.fits:
            if self.options.checkpoint:
                modules.recompute_blocks(module, self.options.checkpoint)
            self.describe_model(module)
            self.recording.strategy = _strategy_of(module)
            dtype = next((each.dtype for each in module.parameters()), torch.float32)
            self.recording.precision = {torch.bfloat16: "bf16-true", torch.float16: "16-true"}.get(dtype, "32-true")
        self.memory.name_modules(module)

    def count_parameters(self, model: torch.nn.Module) -> None:
        """Record the size of a whole model, which a strategy has not sharded yet."""
        # ZeRO-3 keeps the size of a parameter that it has partitioned.
        numbers = [(getattr(each, "ds_numel", each.numel()), each.requires_grad) for each in model.parameters()]
        self.recording.parameters = sum(number for number, _ in numbers)
        self.recording.trainable = sum(number for number, is_trained in numbers if is_trained)

    def describe_model(self, model: torch.nn.Module) -> None:
        """Record the size of a model, and name its modules for the operators."""
        if not self.recording.parameters:
            self.count_parameters(model)
        compiled = {each for part in model.modules() if is_compiled(part) for each in part.parameters()}
        total = sum(each.numel() for each in model.parameters())
        share = sum(each.numel() for each in compiled) / max(total, 1)
        self.recording.compiled = self.recording.compiled or share > 0.5  # noqa: PLR2004 - most of the model
        self.recording.blocks = modules.describe_blocks(model)
        if compiled and not self.recording.compiled:
            self.notes.add("Less than half of the model is compiled, and the plan is that of eager mode.")
        self.memory.name_modules(model)

    def result(self) -> Recording:
        """Return the recording.

        Raises:
            PlanError: If no step was recorded.
        """
        if self.steps.is_ending and not self._is_marked and self._is_recording:
            self._end_step()
        self._stop()
        if self.options.batch_size is not None and self.recording.steps and not self.batches.has_new_size:
            raise PlanError(
                "the size of the program's batches cannot be changed: they must come from a DataLoader of torch, as "
                "tensors, lists or mappings whose first dimension is the batch"
            )
        self.recording.notes = sorted(self.notes)
        self.recording.host_reads = list(self._host_reads.values())
        if not self.recording.steps:
            raise self._no_step()
        return self.recording

    def _no_step(self) -> PlanError:
        if self.fits:
            return PlanError(
                "`Trainer.fit` ended without a training step: its DataLoader must have a batch for this rank, and "
                "`max_epochs` and `max_steps` must not be 0"
            )
        if self._optimizer_location:
            return PlanError(
                "the program steps its optimizer once, and a plan needs two steps: train on two batches, or put `with "
                "plan.step():` around the step (`from hpu_sim import plan`), which has no effect outside of a plan",
                self._optimizer_location,
            )
        return PlanError(
            "the program ended without a training step: it must call `Trainer.fit` or step an optimizer, or mark a "
            "step of its loop with `with plan.step():` (`from hpu_sim import plan`)"
        )


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether a module is compiled with ``torch.compile``, as an object of its own or in place."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _strategy_of(module: torch.nn.Module) -> str:
    """Return how a module is parallel: "ddp", "fsdp2", or "single"."""
    from torch.distributed.fsdp import FSDPModule
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(module, DistributedDataParallel):
        return "ddp"
    return "fsdp2" if any(isinstance(each, FSDPModule) for each in module.modules()) else "single"


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
