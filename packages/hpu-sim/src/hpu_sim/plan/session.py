"""Planning session: options, and the recording of a program."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpu_sim.device import runtime
from hpu_sim.plan import blocks
from hpu_sim.plan.batches import Batches
from hpu_sim.plan.errors import PlanComplete, PlanError
from hpu_sim.prediction.recording import STEPS, STEPS_OF_DDP, Recording, StepRecording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch


@dataclass(frozen=True)
class Options:
    """Options of a plan.

    Attributes:
        devices: Ranks per box.
        nodes: Number of boxes.
        strategy: Strategy that replaces the program's; None for its own.
        precision: Precision that replaces the program's; None for its own.
        batch_size: Batch size per rank that replaces the program's; None for its own.
        checkpoint: Number of repeated blocks whose activations are recomputed in the backward pass.
        rank: Rank to plan.
        only_rank: Whether to plan no other rank.
        compiled: Whether to plan the program as compiled by hpu_backend.
        steps: Steps to record; 0 for all of which the plan of a program needs to know.
        tensor_parallel: Ranks among which a program with a mesh divides each layer; 0 for its own number.
    """

    devices: int = 1
    nodes: int = 1
    strategy: str | None = None
    precision: str | None = None
    batch_size: int | None = None
    checkpoint: int = 0
    rank: int = 0
    only_rank: bool = False
    compiled: bool = False
    steps: int = 0
    tensor_parallel: int = 0

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.devices * self.nodes

    @property
    def changes(self) -> str:
        """What is changed of the program, beside its strategy."""
        changes = {
            "precision": self.precision,
            "batch": self.batch_size,
            "recomputed blocks": self.checkpoint or None,
            "tensor parallel": self.tensor_parallel or None,
        }
        return ", ".join(f"{name} {value}" for name, value in changes.items() if value is not None)


class Session:
    """One program's run on the device of a plan.

    Attributes:
        device: Device.
        recording: What is known so far.
        has_ddp: Whether the model is wrapped in DistributedDataParallel or DeepSpeed's engine. It is as in later steps
            from the third one on: DDP makes its buckets in the second, and DeepSpeed's timer then waits in each.
        fits: Whether the program has called ``Trainer.fit``.
        is_marked: Whether the program marks its steps.
        batches: What the program draws from its DataLoaders.
    """

    def __init__(
        self, options: Options, command: Sequence[str], on_progress: Callable[[str], None] | None = None
    ) -> None:
        from hpu_sim.plan.device import PlanDevice

        self.device = PlanDevice(self._on_root_module, self._on_step, self._show_progress)
        self._on_progress = on_progress
        self.batches = Batches()
        self.options = options
        self.has_ddp = False
        self.fits = False
        self.is_marked = False
        self._ended = 0
        self.recording = Recording(tuple(command), options.rank, options.world_size, options.devices)
        self.recording.compiled, self.recording.lazy = options.compiled, runtime.active_config().lazy
        if options.compiled and self.recording.lazy:
            msg = "`--compile` needs eager mode, got lazy mode: set PT_HPU_LAZY_MODE=0"
            raise PlanError(msg)
        self.device.step = self.recording.setup

    def loader_batch_size(self) -> int | None:
        """Return the size of the batches that DataLoaders give from now on; None for their own.

        The Trainer's are resized on the device.
        """
        return None if self.fits else self.options.batch_size

    def start(self) -> None:
        """Begin the first step, whatever the optimizers of the program did before."""
        self._forget_steps()
        self.batches.end_step()
        self._begin_step()

    def _forget_steps(self) -> None:
        self.recording.steps.clear()
        self._ended = 0

    def _begin_step(self) -> None:
        self.recording.steps.append(StepRecording())
        self.device.begin(self.recording.steady)

    def _end_step(self) -> None:
        self.device.end()
        step = self.recording.steady
        drawn = self.batches.end_step()
        if drawn.seconds is None:
            self.device.notes.add("The time to fetch a batch is not known: its dataset is a stream, or bears one pass.")
        else:
            step.loader_seconds, step.worker_seconds = drawn.seconds
        self.recording.accumulate = max(drawn.count, 1)
        step.inputs = drawn.inputs
        # Of earlier steps, a plan needs the memory and the collectives alone.
        for earlier in self.recording.steps[:-1]:
            earlier.operations.clear()
        self._ended += 1

    @property
    def _steps(self) -> int:
        """Number of steps to record."""
        return self.options.steps or (STEPS_OF_DDP if self.has_ddp else STEPS)

    def _on_step(self) -> None:
        """Take the end of a step of a program that does not mark them.

        Without a Trainer or Fabric, the first one counts as setup: its beginning is not known.
        """
        if self.is_marked:
            return
        if not self.recording.steps:
            self.start()
        elif self.recording.steady.operations:
            self._end_step()
            self._raise_if_complete()
            self._begin_step()

    def _raise_if_complete(self) -> None:
        if self._ended >= self._steps:
            raise PlanComplete

    @contextlib.contextmanager
    def marked_step(self) -> Iterator[None]:
        """Take what the program does within as a step; its optimizers end none from now on."""
        if not self.is_marked:
            self.is_marked = True
            self._forget_steps()
        self._begin_step()
        yield
        self._end_step()
        self._raise_if_complete()

    def _show_progress(self) -> None:
        """Report what runs."""
        if self._on_progress is not None:
            number, phase = len(self.recording.steps), self.device.phase
            self._on_progress("setup" if phase == "setup" else f"step {number} of {self._steps}, {phase}")

    def _on_root_module(self, module: torch.nn.Module) -> None:
        """Describe the first module of a program without a Trainer."""
        import torch
        from torch.nn.parallel import DistributedDataParallel

        if isinstance(module, DistributedDataParallel):
            self.has_ddp = True
        if self.recording.parameters == 0 and not self.fits:
            if self.options.checkpoint:
                blocks.checkpoint(module, self.options.checkpoint)
            self.describe_model(module)
            self.recording.strategy = _strategy_of(module)
            dtype = next((each.dtype for each in module.parameters()), torch.float32)
            self.recording.precision = {torch.bfloat16: "bf16-true", torch.float16: "16-true"}.get(dtype, "32-true")

    def describe_model(self, model: torch.nn.Module) -> None:
        """Record the size of a model, and name its modules for the operators."""
        parameters = list({id(each): each for each in model.parameters()}.values())
        # ZeRO-3 keeps the size of a parameter that it has partitioned.
        numbers = [getattr(each, "ds_numel", each.numel()) for each in parameters]
        self.recording.parameters = sum(numbers)
        self.recording.trainable = sum(
            number for number, each in zip(numbers, parameters, strict=True) if each.requires_grad
        )
        compiled = {id(each) for part in model.modules() if is_compiled(part) for each in part.parameters()}
        share = sum(each.numel() for each in parameters if id(each) in compiled) / max(self.recording.parameters, 1)
        self.recording.compiled = self.recording.compiled or share > 0.5  # noqa: PLR2004 - most of the model
        self.recording.is_uneven = any(map(_is_uneven, parameters))
        self.recording.blocks = blocks.describe(model)
        if compiled and not self.recording.compiled:
            self.device.notes.add("Less than half of the model is compiled, and the plan is that of eager mode.")
        self.device.memory.name_modules(model)

    def result(self) -> Recording:
        """Return the recording.

        Raises:
            PlanError: If no step was recorded.
        """
        if self.device.steps.is_ending and not self.is_marked and self.recording.steps:
            self._end_step()
        self.device.finish()
        del self.recording.steps[self._ended :]
        if self.options.batch_size is not None and self.recording.steps and not self.batches.was_resized:
            msg = (
                "the size of the program's batches cannot be changed: they must come from a DataLoader of torch, as "
                "tensors, lists or mappings whose first dimension is the batch"
            )
            raise PlanError(msg)
        if self.recording.precision == "fp8" and not any(
            each.dtype == "float8" for step in self.recording.steps[-1:] for each in step.operations
        ):
            msg = (
                "precision='fp8' changes nothing here: it applies to layers of Intel's transformer engine, and the "
                "model has none. Call `plugin.convert_modules(model, replace_layers=True)`, or plan 'bf16-mixed'"
            )
            raise PlanError(msg)
        self.recording.notes = sorted(self.device.notes)
        self.recording.lines = dict(self.device.lines)
        self.recording.host_reads = list(self.device.host_reads.values())
        if not self.recording.steps:
            raise self._no_step()
        return self.recording

    def _no_step(self) -> PlanError:
        if self.fits:
            return PlanError(
                "`Trainer.fit` ended without a training step: its DataLoader must have a batch for this rank, and "
                "`max_epochs` and `max_steps` must not be 0"
            )
        if self.device.optimizer_location:
            return PlanError(
                "the program steps its optimizer once, and a plan needs two steps: train on two batches, or put `with "
                "plan.step():` around the step (`from hpu_sim import plan`), which has no effect outside of a plan",
                self.device.optimizer_location,
            )
        return PlanError(
            "the program ended without a training step: it must call `Trainer.fit` or step an optimizer, or mark a "
            "step of its loop with `with plan.step():` (`from hpu_sim import plan`)"
        )


def _is_uneven(parameter: Any) -> bool:
    """Return whether a DTensor has shards of different sizes."""
    placements = getattr(parameter, "placements", ())
    return any(
        placement.is_shard() and parameter.shape[placement.dim] % parameter.device_mesh.size(dimension)
        for dimension, placement in enumerate(placements)
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


_current: Session | None = None


def current() -> Session | None:
    """Return the session of this process; None if it plans nothing."""
    return _current


@contextlib.contextmanager
def set_current(session: Session) -> Iterator[None]:
    """Make a session that of this process, in which one program runs at a time."""
    global _current  # noqa: PLW0603 - as above
    _current = session
    try:
        yield
    finally:
        _current = None


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Mark a training step of a program without a Trainer, for `hpu-sim plan`.

    Without a plan it has no effect. A plan ends the program after the second marked step.
    """
    session = current()
    with session.marked_step() if session is not None else contextlib.nullcontext():
        yield
