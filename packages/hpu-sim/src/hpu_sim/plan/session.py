"""Planning session: options, and the recording of a program."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpu_sim.plan import blocks
from hpu_sim.plan.errors import PlanComplete, PlanError
from hpu_sim.prediction import torch_tools
from hpu_sim.prediction.recording import STEPS, STEPS_OF_DDP, Recording, StepRecording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch


@dataclass(frozen=True)
class Options:
    """Options of a plan.

    Attributes:
        devices: Ranks per box; None for what the program asks for.
        nodes: Number of boxes; None for what the program asks for.
        strategy: Strategy that replaces the program's; None for its own.
        precision: Precision that replaces the program's; None for its own.
        batch_size: Batch size per rank that replaces the program's; None for its own.
        checkpoint: Number of repeated blocks whose activations are recomputed in the backward pass.
        rank: Rank to plan.
        only_rank: Whether to plan no other rank.
    """

    devices: int = 1
    nodes: int = 1
    strategy: str | None = None
    precision: str | None = None
    batch_size: int | None = None
    checkpoint: int = 0
    rank: int = 0
    only_rank: bool = False

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.devices * self.nodes


class Session:
    """One program's run on the fake device.

    Attributes:
        device: Fake device.
        recording: What is known so far.
        has_ddp: Whether the model is wrapped in DistributedDataParallel.
        fits: Whether the program has called ``Trainer.fit``.
        optimizer_location: First line of the program that steps an optimizer.
        zero: Strategy of DeepSpeed that the program asks for, which is modelled and not executed.
        zero_config: Its configuration; None for a strategy by name.
    """

    def __init__(self, options: Options, command: Sequence[str]) -> None:
        from hpu_sim.plan.fake_device import FakeDevice

        self.device = FakeDevice(self._on_root_module)
        self.options = options
        self.has_ddp = False
        self.fits = False
        self.optimizer_location = ""
        self.recording = Recording(tuple(command), options.rank, options.world_size, options.devices)
        self.zero: str | None = None
        self.zero_config: dict[str, Any] | None = None
        self.device.step = self.recording.setup

    def begin_step(self, batch: Any = None) -> None:
        """Begin a step."""
        step = StepRecording(inputs=_describe(batch))
        self.recording.steps.append(step)
        self.device.host_reads.clear()
        self.device.begin(step)

    def end_step(self) -> None:
        """End a step.

        Raises:
            PlanComplete: If it was the last one.
        """
        self.device.end()
        if len(self.recording.steps) >= (STEPS_OF_DDP if self.has_ddp else STEPS):
            raise PlanComplete

    def _on_root_module(self, module: torch.nn.Module) -> None:
        """Describe the first module of a program without a Trainer."""
        import torch
        from torch.nn.parallel import DistributedDataParallel

        if isinstance(module, DistributedDataParallel):
            self.has_ddp = True
        if self.recording.parameters == 0:
            self.describe_model(module)
            self.recording.strategy = _strategy_of(module)
            dtype = next((each.dtype for each in module.parameters()), torch.float32)
            self.recording.precision = {torch.bfloat16: "bf16-true", torch.float16: "16-true"}.get(dtype, "32-true")

    def describe_model(self, model: torch.nn.Module) -> None:
        """Record the size of a model, and name its modules for the operators."""
        parameters = list({id(each): each for each in model.parameters()}.values())
        self.recording.parameters = sum(each.numel() for each in parameters)
        self.recording.trainable = sum(each.numel() for each in parameters if each.requires_grad)
        sizes = [sum(each.numel() for each in module.parameters(recurse=False)) for module in model.modules()]
        self.recording.largest_module = max(sizes, default=0)
        compiled = {id(each) for part in model.modules() if _is_compiled(part) for each in part.parameters()}
        share = sum(each.numel() for each in parameters if id(each) in compiled) / max(self.recording.parameters, 1)
        self.recording.compiled = self.recording.compiled or share > 0.5  # noqa: PLR2004 - most of the model
        self.recording.is_uneven = any(map(_is_uneven, parameters))
        self.recording.blocks = blocks.describe(model)
        if compiled and not self.recording.compiled:
            self.device.notes.add("Less than half of the model is compiled, and the plan is that of eager mode.")
        self.device.tracker.name_modules(model)
        self.device.tracker.track_external(model)

    def result(self) -> Recording:
        """Return the recording.

        Raises:
            PlanError: If no step was recorded.
        """
        self.device.end()
        self.recording.notes = sorted(self.device.notes)
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
        if self.optimizer_location:
            return PlanError(
                "the program steps its optimizer in a loop of its own: put `with plan.step():` around one step of the "
                "loop (`from hpu_sim import plan`); it has no effect outside of a plan",
                self.optimizer_location,
            )
        return PlanError(
            "the program ended without a training step: it must call `Trainer.fit`, use Fabric with an optimizer, or "
            "mark a step of its own loop with `with plan.step():` (`from hpu_sim import plan`)"
        )


def _is_uneven(parameter: Any) -> bool:
    """Return whether a DTensor has shards of different sizes."""
    placements = getattr(parameter, "placements", ())
    return any(
        placement.is_shard() and parameter.shape[placement.dim] % parameter.device_mesh.size(dimension)
        for dimension, placement in enumerate(placements)
    )


def _is_compiled(module: torch.nn.Module) -> bool:
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
    if session is None:
        yield
        return
    session.begin_step()
    yield
    session.end_step()


def _describe(batch: Any) -> tuple[tuple[str, tuple[int, ...], int], ...]:
    return tuple(
        (str(each.dtype).removeprefix("torch."), tuple(each.shape), each.numel() * each.element_size())
        for each in torch_tools.tensors_in(batch)
    )
