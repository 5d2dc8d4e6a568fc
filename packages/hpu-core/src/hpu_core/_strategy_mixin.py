"""Part that all strategies share, the Trainer's and Fabric's, on one device and on several."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from hpu_core import _rendezvous_env, bridge, collectives, discovery, frameworks, hccl
from hpu_core._lightning import MisconfigurationException, WrappingCheckpointIO
from hpu_core.accelerator import HPUAccelerator
from hpu_core.async_save import AsyncSaves
from hpu_core.checkpoint import HPUCheckpointIO
from hpu_core.distributed.environment import validate_environment
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.failure_detection import SYNAPSE_TIMEOUT
from hpu_core.distributed.launcher import SUBPROCESS_LAUNCHERS
from hpu_core.distributed.process_group import ALONE, ProcessGroupManager

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO
    from lightning.fabric.strategies.registry import _StrategyRegistry
    from lightning.fabric.utilities.types import _DEVICE
    from typing_extensions import Self

    class _Strategy:
        """Part of Lightning's strategies, the Trainer's and Fabric's, that is used here."""

        accelerator: Any
        cluster_environment: Any
        global_rank: Any
        local_rank: Any
        num_nodes: Any
        num_processes: Any
        world_size: Any
        _checkpoint_io: CheckpointIO | None
        _launcher: Any
        _parallel_devices: list[torch.device] | None

        # The two have different signatures.
        def _any(self, *args: Any, **kwargs: Any) -> Any: ...

        all_gather = optimizer_step = setup_environment = teardown = tensor_init_context = _configure_launcher = _any

else:
    _Strategy = object

T = TypeVar("T")

# Seconds from the guard's last act to SynapseAI's.
_MARGIN = 60.0


class _AcceleratorError(MisconfigurationException, AssertionError):
    """The accelerator is not an HPUAccelerator. `lightning-habana` raised an AssertionError."""


class HPUStrategyMixin(_Strategy):
    """Mixin for strategies on HPU; list it before Lightning's strategy.

    A subclass defines the name under which it is registered, and launches graphs in lazy mode. One for several devices
    calls `take_process_groups` before Lightning's constructor. The device is that of the rank, or one that `devices` or
    HABANA_VISIBLE_MODULES allows.

    Attributes:
        process_groups: The manager of this strategy's process group; one that is never joined on a single device.
        other_names: Further names under which it is registered.
        saves_alone: Whether a rank needs no other one for a checkpoint.
        saves: Its asynchronous saves, if it writes checkpoints on another thread.
        module_ids: Module ids for the local ranks, if the Trainer's or Fabric's `devices` lists cards; set by the
            connector.
    """

    strategy_name: str
    other_names: tuple[str, ...] = ()
    process_groups: ProcessGroupManager = ALONE
    saves_alone = False
    saves: AsyncSaves | None = None
    module_ids: "tuple[int, ...] | None" = None

    # Set in `prepare_device`; None in eager mode, which costs nothing per step.
    _mark_step: Callable[[], None] | None = None
    # Launcher of ranks that another program has started.
    _in_process_launcher: type[Any]

    @classmethod
    def from_lightning(cls, strategy: Any, **others: Any) -> "Self":
        """Return a strategy with the arguments of one of Lightning's, which it replaces on HPU, and others."""
        return cls(**constructor_arguments(cls, strategy), **others)

    def take_process_groups(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Create the manager of the process group by a constructor's arguments, and return those for Lightning's."""
        names = ("process_group_backend", "timeout", "failure_detection")
        manager = self.process_groups = ProcessGroupManager(*(arguments.pop(name) for name in names))
        return arguments | {"process_group_backend": manager.backend, "timeout": manager.timeout}

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        """One `torch.device("hpu")` per device of this machine.

        Raises:
            ValueError: On assigning, a device is not an HPU, or has an index other than 0.
        """
        return self._parallel_devices

    @parallel_devices.setter
    def parallel_devices(self, devices: Sequence[torch.device] | None) -> None:
        self._parallel_devices = validate_devices(devices, type(self).__name__)

    @property
    def checkpoint_io(self) -> "CheckpointIO":
        """Plugin that writes and reads checkpoints; `HPUCheckpointIO` unless the user sets another one.

        A wrapper such as Lightning's AsyncCheckpointIO wraps an HPUCheckpointIO if it wraps no other plugin.
        """
        if self._checkpoint_io is None:
            self._checkpoint_io = HPUCheckpointIO()
        elif isinstance(self._checkpoint_io, WrappingCheckpointIO):
            # The wrapper's setter keeps a plugin that the user set.
            self._checkpoint_io.checkpoint_io = HPUCheckpointIO()
        return self._checkpoint_io

    @checkpoint_io.setter
    def checkpoint_io(self, io: "CheckpointIO") -> None:
        self._checkpoint_io = io

    def setup_environment(self) -> None:
        """Wait for the other ranks, open this rank's device and create the process group, which Lightning then finds.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator.
            ModuleNotFoundError: The Gaudi bridge is not installed.
            RankFailedError: A rank did not join, or has failed; the message names it.
            RuntimeError: No device could be opened.
            ValueError: HABANA_VISIBLE_MODULES is invalid, or ranks disagree about the job.
        """
        self.check_accelerator()
        self.join_ranks()
        self.prepare_device()
        self.setup_hccl_env()
        if self.process_groups is not ALONE:
            self.process_groups.init_process_group(self.cluster_environment)
        self._set_up_by_lightning()

    def _set_up_by_lightning(self) -> None:
        super().setup_environment()

    def check_accelerator(self) -> None:
        """Raise an error for another accelerator, such as the CPU's, which Lightning selects by default."""
        if not isinstance(self.accelerator, HPUAccelerator):
            raise _AcceleratorError(
                f"{type(self).__name__} needs an HPUAccelerator, got {type(self.accelerator).__name__}: pass "
                "`accelerator=hpu_core.HPUAccelerator()` as well"
            )

    def join_ranks(self) -> None:
        """Set the rank of this process and wait for the other ranks; a strategy for one device has none."""
        if self.process_groups is not ALONE:
            self._set_rank()
            self.process_groups.rendezvous(self.cluster_environment)

    def _set_rank(self) -> None:
        """Set the rank by Lightning's method, which has another name in Fabric."""

    def prepare_device(self) -> None:
        """Load the Gaudi bridge, which torch needs for "hpu", and select the device."""
        bridge.load()
        self.select_device()
        self._mark_step = bridge.mark_step_if_lazy()

    def setup_hccl_env(self) -> None:
        """Set this process's rank and module for the bridge, before its device is opened; subclasses may extend it."""
        if self.process_groups is not ALONE:
            hccl.initialize_hccl(self.world_size, self.global_rank, self.local_rank)

    def select_device(self) -> None:
        """Select the device that this process will open, unless it has opened one.

        On several devices, SynapseAI waits longer for progress than the guard.
        """
        if self.process_groups is ALONE:
            return hccl.select_device(modules=self.module_ids)
        seconds = self.process_groups.timeout.total_seconds()
        if seconds > SYNAPSE_TIMEOUT - _MARGIN:
            # In microseconds.
            hccl.set_environment({"SCAL_TIMEOUT_NO_PROGRESS": str(int((seconds + _MARGIN) * 1e6))})
        return hccl.select_device(self.world_size, self.local_rank, self.module_ids)

    def tensor_init_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return Lightning's context that creates tensors on the device.

        `Trainer.init_module` and `Fabric.init_tensor` may precede `setup_environment`.
        """
        self.prepare_device()
        return super().tensor_init_context(*args, **kwargs)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run Lightning's optimizer step, with the Trainer's closure, then launch its graph (lazy mode)."""
        with self.process_groups.step("optimizer step"):
            result = super().optimizer_step(*args, **kwargs)
            self._mark_step_if_lazy()
            return result

    def gather_random_states(self, state: Tensor) -> Tensor | None:
        """Return the states of all ranks; None if one has failed: a checkpoint of DDP needs no other rank."""
        if self.process_groups is ALONE:
            return state[None]
        try:
            if self.process_groups.leave_if_failed("all-gather"):
                return None
            return self.all_gather(state.to("hpu")).cpu().reshape(-1, state.numel())
        except RankFailedError:
            return None

    def require_ranks(self, name: str) -> None:
        """Raise the error of `ProcessGroupManager.wait` if this rank needs the others for what is about to begin."""
        if not self.saves_alone:
            with self.process_groups.wait(name):
                pass

    def all_gather(self, tensor: Tensor, group: Any | None = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, see `hpu_core.collectives`; with `sync_grads`, their gradients flow back."""
        if not self.process_groups.is_joined:
            return tensor
        with self.process_groups.wait("all-gather", group):
            if not sync_grads:
                return collectives.all_gather(tensor, group)
            collectives.check_device(tensor)
            parts: Tensor = super().all_gather(tensor, group, sync_grads)
            return parts

    def broadcast(self, obj: T, src: int = 0) -> T:
        """Return the object of rank `src`; on a rank that has failed and saves alone, its own."""
        if not self.process_groups.is_joined or (self.saves_alone and self.process_groups.leave_if_failed("broadcast")):
            return obj
        with self.process_groups.wait("broadcast"):
            return collectives.broadcast(obj, src)

    def barrier(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - Lightning passes a name for its logs.
        """Wait until all ranks are here and their devices have finished all work, unless this rank has failed."""
        if not self.process_groups.leave_if_failed("barrier") and self.process_groups.is_joined:
            with self.process_groups.wait("barrier"):
                collectives.barrier(self.process_groups.wait_for_device)

    def reduce_over_ranks(self, tensor: Any, group: Any | None = None, reduce_op: Any = "mean") -> Any:
        """Reduce a tensor over all ranks, in place; anything but a tensor is returned as it is."""
        if not isinstance(tensor, Tensor) or not self.process_groups.is_joined:
            return tensor
        with self.process_groups.wait("all-reduce", group):
            return collectives.all_reduce(tensor, group, reduce_op)

    def finish_save(self) -> None:
        """Wait until the last asynchronous save is complete; every rank must call it.

        Raises:
            Exception: The save failed, and the previous checkpoint is unchanged.
        """
        if self.saves is not None and self.saves.finish():
            self.barrier()

    def teardown(self) -> None:
        """Move everything off the device, which stays with the process until it exits, and leave the other ranks."""
        with ExitStack() as stack:
            if self.process_groups is not ALONE:
                stack.callback(hccl.restore_environment)
                stack.callback(self.process_groups.close)
            stack.callback(super().teardown)
            if self.saves is not None:
                stack.callback(self.saves.close)
                self.finish_save()

    def _configure_launcher(self) -> None:
        if self.process_groups is ALONE:
            super()._configure_launcher()
            return
        self._validate_environment()
        try:
            discovery.check_devices(self.num_processes)
        except ValueError as error:
            raise MisconfigurationException(str(error)) from error
        # Lightning 2.0.0 passes these to Fabric's other ranks before it asks for the rank of this process.
        _rendezvous_env.clear()
        super()._configure_launcher()
        if launcher := SUBPROCESS_LAUNCHERS.get(type(self._launcher)):
            self._launcher = launcher(self.cluster_environment, self.num_processes, self.num_nodes)
            self._launcher.launched = self.process_groups.launched if self.process_groups.failure_detection else None
        elif self._launcher is None:
            self._launcher = self._in_process_launcher()
        self._launcher.run = self.process_groups.run

    def _validate_environment(self) -> None:
        validate_environment(self.cluster_environment, self.num_processes, self.num_nodes)

    @classmethod
    def register_strategies(cls, strategy_registry: "_StrategyRegistry") -> None:
        """Register the strategy under its names with Lightning's registry, replacing Lightning 2.0's own."""
        for name in (*cls.other_names, cls.strategy_name):
            strategy_registry.register(name, cls, description=cls.__name__, override=True)

    def __repr__(self) -> str:
        return frameworks.describe(self)

    def _mark_step_if_lazy(self) -> None:
        if self._mark_step is not None:
            self._mark_step()


def constructor_arguments(cls: type, strategy: Any) -> dict[str, Any]:
    """Return the arguments of a class that Lightning's strategy, not set up yet, has as attributes, private or not."""
    names, attributes = inspect.signature(cls).parameters, vars(strategy)
    # Further arguments of torch's wrapper, under Lightning's names for them.
    further = (attributes.get(name, {}) for name in ("_ddp_kwargs", "_fsdp_kwargs", "kwargs") if "kwargs" in names)
    arguments = {name: attributes[key] for name in names for key in (f"_{name}", name) if key in attributes}
    return {name: value for each in (arguments, *further) for name, value in each.items() if name != "kwargs"}


def validate_device(device: "_DEVICE") -> torch.device:
    """Return `torch.device("hpu")`, the only valid device.

    Raises:
        ValueError: `device` is another one.
    """
    try:
        requested = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"`device` must be 'hpu', got {device!r}") from error
    if requested.type != "hpu":
        raise ValueError(f"`device` must be 'hpu', got {str(requested)!r}")
    if requested.index not in {None, 0}:
        raise ValueError(
            f"`device` must be 'hpu' without an index, got {str(requested)!r}: a process sees its one card as 'hpu'; "
            "choose the card with HLS_MODULE_ID before it is opened"
        )
    return torch.device("hpu")


def validate_devices(devices: Sequence[torch.device] | None, strategy: str) -> list[torch.device] | None:
    """Return `validate_device` of each device; `strategy` is the name of its class, for the error message."""
    if devices is None:
        return None
    try:
        return [validate_device(device) for device in devices]
    except ValueError as error:
        raise ValueError(
            f"{strategy} trains on HPUs only: {error}. Pass `accelerator=hpu_core.HPUAccelerator()` as well, and name "
            "cards with HABANA_VISIBLE_MODULES"
        ) from error
