"""Part that all strategies share, the Trainer's and Fabric's, on one device and on several."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from hpu_core import _rendezvous_env, bridge, collectives, discovery, frameworks, hccl, plugins
from hpu_core._lightning import MisconfigurationException, WrappingCheckpointIO
from hpu_core.accelerator import HPUAccelerator
from hpu_core.arguments import constructor_arguments
from hpu_core.checkpoints.plugin import HPUCheckpointIO
from hpu_core.checkpoints.saves import AsyncSaves, Ranks, SharedSave, locate
from hpu_core.distributed.process_group import NO_GROUP, ProcessGroupManager
from hpu_core.distributed.processes import LAUNCHED
from hpu_core.distributed.progress import BARRIER

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO
    from lightning.fabric.strategies.registry import _StrategyRegistry
    from lightning.fabric.utilities.types import _DEVICE, _PATH
    from typing_extensions import Self

    class _Strategy:
        """Part of Lightning's strategies, the Trainer's and Fabric's, that is used here."""

        accelerator: Any
        cluster_environment: Any
        global_rank: Any
        local_rank: Any
        num_nodes: Any
        num_processes: Any
        root_device: Any
        world_size: Any
        _checkpoint_io: CheckpointIO | None
        _launcher: Any
        _start_method: Any

        # The two have different signatures.
        def _any(self, *args: Any, **kwargs: Any) -> Any: ...

        all_gather = optimizer_step = setup_environment = teardown = tensor_init_context = _configure_launcher = _any

else:
    _Strategy = object

T = TypeVar("T")

# Bytes of a rank's error for the others.
_TEXT_SIZE = 512

# SynapseAI kills a process whose device makes no progress for so many seconds: SCAL_TIMEOUT_NO_PROGRESS in
# scal_init.cpp of Intel's Gaudi3_Software.
_SYNAPSE_TIMEOUT = 600.0
# What waits for another rank has that rank named first.
_SYNAPSE_FACTOR = 2.0
# Lightning's own, after the checkpoint that a callback of it saves while it ends a training that has failed.
_LAST_BARRIER = "Trainer.save_checkpoint"


class HPUStrategyMixin(_Strategy):
    """Mixin for strategies on HPU; list it before Lightning's strategy.

    A subclass launches graphs in lazy mode. One for several devices passes to Lightning's constructor what
    `take_arguments` returns. The device is that of the rank, or one that `devices` or HABANA_VISIBLE_MODULES allows.

    Attributes:
        process_groups: The manager of this strategy's process group; one that is never joined on a single device.
        wrapper_arguments: Lightning's attribute with the further arguments of torch's wrapper, if there is one.
        kept_attributes: Attributes that Lightning makes of arguments without keeping these.
        bridge_variables: Variables of the bridge that are set before the device is opened, unless they are set.
        context_parallel_size: Number of neighbouring ranks that share each sequence.
        saves_alone: Whether a rank needs no other one for a checkpoint.
        saves: Its asynchronous saves, if it writes checkpoints on another thread.
        module_ids: Module ids for the local ranks, if the Trainer's or Fabric's `devices` lists cards; set by the
            connector.
    """

    strategy_name: str
    process_groups: ProcessGroupManager = NO_GROUP
    wrapper_arguments = ""
    kept_attributes: tuple[str, ...] = ()
    bridge_variables: Mapping[str, str] = {}
    context_parallel_size = 1
    saves_alone = False
    saves: AsyncSaves | None = None
    module_ids: "tuple[int, ...] | None" = None

    # Whether the device of this process is chosen, which tensors call "hpu:0".
    _has_device = False
    # Set in `prepare_device`; None in eager mode, which costs nothing per step.
    _mark_step: Callable[[], None] | None = None
    # The launchers in place of Lightning's.
    _script_launcher: type[Any]
    _multiprocessing_launcher: type[Any] | None = None

    @classmethod
    def from_lightning(cls, strategy: Any, **others: Any) -> "Self":
        """Return a strategy with the arguments of one of Lightning's, which it replaces on HPU, and others."""
        made = cls(**constructor_arguments(cls, strategy), **others)
        vars(made).update({name: vars(strategy)[name] for name in cls.kept_attributes})
        return made

    def take_arguments(self, local_names: Mapping[str, Any]) -> dict[str, Any]:
        """Take what all strategies add out of the arguments of a constructor, and return the others.

        Without the further keyword arguments, which a constructor passes on by name: LightningCLI reads there which
        ones Lightning and torch have.

        Args:
            local_names: The constructor's `locals()`.

        Raises:
            TypeError: `timeout` is not a timedelta.
            ValueError: An argument is invalid; the message names it.
        """
        arguments = {name: value for name, value in local_names.items() if name not in {"self", "__class__", "kwargs"}}
        names = ("process_group_backend", "timeout", "failure_detection")
        manager = self.process_groups = ProcessGroupManager(*(arguments.pop(name) for name in names))
        if arguments.pop("async_save", False):
            self.saves = AsyncSaves()
        return arguments | {"process_group_backend": manager.backend, "timeout": manager.timeout}

    @functools.cached_property
    def at_teardown(self) -> ExitStack:
        """What `teardown` undoes, such as replacements in torch and in the model."""
        return ExitStack()

    @property
    def root_device(self) -> torch.device:
        """Device of this process, which has an index once it is chosen, as that of tensors.

        torch takes "hpu" and "hpu:0" for different devices.
        """
        device: torch.device = torch.device("hpu", 0) if self._has_device else super().root_device
        return device

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
            RankFailedError: A rank did not join; the message names it.
            RuntimeError: No device could be opened.
            ValueError: HABANA_VISIBLE_MODULES is invalid.
        """
        self.check_accelerator()
        self.join_ranks()
        self.prepare_device()
        self.setup_hccl_env()
        if self.process_groups is not NO_GROUP:
            self.process_groups.init_process_group(self.cluster_environment)
        with self._setting_up():
            self._set_up_by_lightning()

    def _setting_up(self) -> AbstractContextManager[Any]:
        """Return the context of Lightning's part, in which the ranks have joined, and their devices are chosen."""
        return nullcontext()

    def _set_up_by_lightning(self) -> None:
        super().setup_environment()

    def check_accelerator(self) -> None:
        """Raise an error for another accelerator, such as the CPU's, which Lightning selects by default."""
        if not isinstance(self.accelerator, HPUAccelerator):
            raise MisconfigurationException(
                f"{type(self).__name__} needs an HPUAccelerator, got {type(self.accelerator).__name__}: pass "
                "`accelerator=hpu_core.HPUAccelerator()` as well"
            )

    def join_ranks(self) -> None:
        """Set the rank of this process and wait for the other ranks; a strategy for one device has none."""
        if self.process_groups is not NO_GROUP:
            self._set_rank()
            self.process_groups.rendezvous(self.cluster_environment)

    def _set_rank(self) -> None:
        """Set the rank by Lightning's method, which has another name in Fabric."""

    def prepare_device(self) -> None:
        """Load the Gaudi bridge, which torch needs for "hpu", and select the device, unless one is open.

        With failure detection, SynapseAI waits for progress of the device at least twice as long as the ranks do.
        """
        hccl.set_environment(self.bridge_variables)
        bridge.load()
        if self.process_groups is NO_GROUP:
            hccl.select_device(modules=self.module_ids)
        else:
            seconds = _SYNAPSE_FACTOR * self.process_groups.timeout.total_seconds()
            if self.process_groups.failure_detection and seconds > _SYNAPSE_TIMEOUT:
                # In microseconds.
                hccl.set_environment({"SCAL_TIMEOUT_NO_PROGRESS": str(int(seconds * 1e6))})
            hccl.select_device(self.world_size, self.local_rank, self.module_ids)
        self._has_device = True
        self._mark_step = bridge.mark_step_if_lazy()

    def setup_hccl_env(self) -> None:
        """Set this process's rank and module for the bridge, before its device is opened; subclasses may extend it."""
        if self.process_groups is not NO_GROUP:
            hccl.initialize_hccl(self.world_size, self.global_rank, self.local_rank)

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

    @property
    def distributed_sampler_kwargs(self) -> Any:
        """Arguments of DistributedSampler, with which ranks that share a sequence have the same samples."""
        # A strategy for one device has none.
        found = getattr(super(), "distributed_sampler_kwargs", None)
        return found and {name: number // self.context_parallel_size for name, number in found.items()}

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
        if not self.process_groups.is_joined or (self.saves_alone and self.process_groups.error is not None):
            return obj
        with self.process_groups.wait("broadcast"):
            return collectives.broadcast(obj, src)

    def barrier(self, name: str | None = None, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - Lightning's.
        """Wait until all ranks are here and their devices have finished all work.

        Raises:
            RankFailedError: Another rank has failed.
            RuntimeError: This rank has failed.
        """
        is_last = self.saves_alone and name == _LAST_BARRIER and self.process_groups.error is not None
        if self.process_groups.is_joined and not is_last:
            with self.process_groups.wait(BARRIER):
                collectives.barrier(self.process_groups.check)

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
        if self.saves is not None:
            self.saves.finish()

    def _save(
        self,
        save_checkpoint: Callable[["_PATH", dict[str, Any]], None],
        path: "_PATH",
        state: dict[str, Any],
        storage_options: Any | None,  # noqa: ARG002 - for strategies that replace a checkpoint only without them.
    ) -> None:
        """Save a state by Lightning's method."""
        save_checkpoint(path, state)

    def _load(
        self,
        load_checkpoint: Callable[..., dict[str, Any]],
        path: "_PATH",
        state: Any | None,  # noqa: ARG002 - for strategies that look into Fabric's.
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Load a checkpoint by Lightning's method, with its further arguments."""
        return load_checkpoint(path, **options)

    @contextmanager
    def replacing(
        self,
        path: "_PATH",
        buffered: Callable[[Path], AbstractContextManager[Callable[[Any], None]]],
        *,
        as_file: bool = False,
    ) -> Iterator[Path]:
        """Yield the path to which the ranks write a checkpoint that replaces one once it is complete on all of them.

        Args:
            path: The checkpoint; rank 0's counts.
            buffered: With asynchronous saves, the context in which this rank's files are kept in host memory instead,
                of the function that writes them on another thread, by a process group for CPU tensors.
            as_file: Whether it is one file, which replaces a folder.
        """
        self.finish_save()
        save = SharedSave(path, self._ranks(), as_file=as_file)
        if self.saves is None:
            try:
                with save.writing() as target:
                    yield target
            except BaseException:
                save.discard()
                raise
            save.commit()
            return
        with buffered(save.new) as write:
            yield save.new
        self.saves.write(write, save)

    def locate_checkpoint(self, path: "_PATH") -> Path:
        """Return where a checkpoint of all ranks is, after asynchronous and interrupted saves are complete.

        Raises:
            RuntimeError: A machine has the checkpoint of another save than rank 0's; the message names it.
        """
        self.finish_save()
        return locate(path, self._ranks())

    def _ranks(self) -> Ranks:
        def gather(text: str) -> list[str]:
            content = bytearray(text.encode()[:_TEXT_SIZE].ljust(_TEXT_SIZE, b"\0"))
            rows = self.all_gather(torch.frombuffer(content, dtype=torch.uint8).to("hpu")).cpu()
            return [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in rows.view(-1, _TEXT_SIZE)]

        return Ranks(self.global_rank, self.local_rank, self.broadcast, gather)

    def teardown(self) -> None:
        """Move everything off the device, which stays with the process until it exits, and leave the other ranks."""
        with ExitStack() as stack:
            if self.process_groups is not NO_GROUP:
                stack.callback(hccl.restore_environment)
                stack.callback(self.process_groups.close)
            stack.callback(super().teardown)
            stack.enter_context(self.at_teardown)
            if self.saves is not None:
                stack.callback(self.saves.close)
                self.finish_save()

    def _configure_launcher(self) -> None:
        if self.process_groups is NO_GROUP:
            super()._configure_launcher()
            return
        try:
            discovery.check_devices(self.num_processes)
        except ValueError as error:
            raise MisconfigurationException(str(error)) from error
        # Lightning 2.0.0 passes these to Fabric's other ranks before it asks for the rank of this process.
        _rendezvous_env.clear()
        if self._multiprocessing_launcher is not None and self._start_method != "popen":
            self._launcher = self._multiprocessing_launcher(self, start_method=self._start_method)
        else:
            # It launches none where another program has.
            self._launcher = self._script_launcher(self.cluster_environment, self.num_processes, self.num_nodes)
            self._launcher.launched = LAUNCHED if self.process_groups.failure_detection else None
        self._launcher.run = self.process_groups.run

    @classmethod
    def register_strategies(cls, strategy_registry: "_StrategyRegistry") -> None:
        """Register the strategy under its names with Lightning's registry, replacing Lightning 2.0's own."""
        own = {f"{base.__module__}:{base.__qualname__}" for base in cls.__mro__}
        for name, paths in plugins.strategies().items():
            if not own.isdisjoint({paths.trainer, paths.fabric}):
                strategy_registry.register(name, cls, description=cls.__name__, override=True, **paths.options)

    def __repr__(self) -> str:
        return frameworks.describe(self)

    def _mark_step_if_lazy(self) -> None:
        if self._mark_step is not None:
            self._mark_step()


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
