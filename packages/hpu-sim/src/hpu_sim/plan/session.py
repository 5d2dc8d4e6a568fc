"""Planning session: a program runs as one rank of a job on the fake device until its steps are recorded."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpu_sim.plan import blocks, torch_tools
from hpu_sim.plan.errors import PlanComplete, PlanError
from hpu_sim.plan.recording import STEPS, STEPS_OF_DDP, Recording, StepRecording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch


@dataclass(frozen=True)
class Options:
    """What the user asks for beside the program.

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

    Args:
        options: What the user asks for.
        command: Program and arguments.

    Attributes:
        device: Fake device.
        recording: What is known so far.
        has_ddp: Whether the model is wrapped in DistributedDataParallel.
        fits: Whether the program has called ``Trainer.fit``.
        optimizer_location: First line of the program that steps an optimizer.
        zero: Strategy of DeepSpeed that the program asks for, which is accounted for and not run.
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
        self.device.step = self.recording.setup

    def begin_step(self, batch: Any = None) -> None:
        """Begin a step.

        Args:
            batch: Its batch, of which the tensors' dtypes, shapes and bytes are recorded.
        """
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
        """Record the size of a model, and name its modules for the operators.

        Args:
            model: The module that is trained.
        """
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


_current: Session | None = None


def _strategy_of(module: torch.nn.Module) -> str:
    """Return how a module is parallel: "ddp", "fsdp2", or "single"."""
    from torch.distributed.fsdp import FSDPModule
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(module, DistributedDataParallel):
        return "ddp"
    return "fsdp2" if any(isinstance(each, FSDPModule) for each in module.modules()) else "single"


def current() -> Session | None:
    """Return the session of this process; None if it plans nothing."""
    return _current


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


def record(program: str | Path, arguments: Sequence[str], options: Options) -> Recording:
    """Run a program on the fake device until its steps are recorded.

    Args:
        program: Python file.
        arguments: Its arguments.
        options: What the user asks for.

    Raises:
        PlanError: If the program cannot be planned; the message has its line.
    """
    path = str(program)

    def run() -> None:
        with _script_arguments(path, arguments):
            runpy.run_path(path, run_name="__main__")

    return record_call(run, options, (path, *arguments))


def record_call(call: Any, options: Options, command: Sequence[str] = ()) -> Recording:
    """Call a function on the fake device until its steps are recorded.

    Args:
        call: Function without arguments.
        options: What the user asks for.
        command: Name of the program for reports.

    Raises:
        PlanError: If the program cannot be planned.
    """
    global _current  # noqa: PLW0603 - one program runs at a time

    torch_tools.require_torch()

    from hpu_sim.plan import frameworks, patches, zero

    session = Session(options, command)
    device = session.device
    _current = session
    try:
        with (
            torch_tools.warnings_filtered(),
            _rank_variables(options),
            patches.applied(session),
            frameworks.taken_over(session),
            device,
        ):
            call()
    except PlanComplete:
        pass
    except SystemExit as error:
        if error.code not in {0, None}:
            raise PlanError(f"the program exited with {error.code!r} before its first training step") from error
    except Exception as error:
        raise patches.explain(error, device) from error
    finally:
        _current = None
    recording = session.result()
    patches.describe_mode(recording)
    return zero.apply(recording, session.zero) if session.zero else recording


@contextlib.contextmanager
def _script_arguments(path: str, arguments: Sequence[str]) -> Iterator[None]:
    """Give a script its arguments and its folder on the import path."""
    argv, folders = sys.argv, list(sys.path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        yield
    finally:
        sys.argv = argv
        sys.path[:] = folders


@contextlib.contextmanager
def _rank_variables(options: Options) -> Iterator[None]:
    """Set the variables that a launcher sets for a rank, so that no process is launched."""
    before = dict(os.environ)
    node_rank, local_rank = divmod(options.rank, options.devices)
    os.environ.update(
        LOCAL_RANK=str(local_rank),
        LOCAL_WORLD_SIZE=str(options.devices),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
        NODE_RANK=str(node_rank),
        GROUP_RANK=str(node_rank),
        RANK=str(options.rank),
        WORLD_SIZE=str(options.world_size),
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _describe(batch: Any) -> tuple[tuple[str, tuple[int, ...], int], ...]:
    return tuple(
        (str(each.dtype).removeprefix("torch."), tuple(each.shape), each.numel() * each.element_size())
        for each in torch_tools.tensors_in(batch)
    )
