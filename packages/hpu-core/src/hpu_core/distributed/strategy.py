"""Mixins and base classes of strategies for several devices, for the Trainer and for Fabric."""

import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hpu_core import _rendezvous_env, collectives, discovery, hccl
from hpu_core._lightning import MisconfigurationException
from hpu_core._strategy_mixin import validate_devices
from hpu_core.distributed.environment import validate_environment
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.failure_detection import SYNAPSE_TIMEOUT
from hpu_core.distributed.launcher import SUBPROCESS_LAUNCHERS, FabricInProcessLauncher, InProcessLauncher
from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_core.distributed.signals import SignalCoordinator
from hpu_core.fabric import FabricHPUStrategy
from hpu_core.strategy import HPUStrategy

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    class _Strategy:
        """Part of Lightning's parallel strategies, the Trainer's and Fabric's, that is used here."""

        cluster_environment: Any
        global_rank: Any
        lightning_module: Any
        local_rank: Any
        module_ids: tuple[int, ...] | None
        num_nodes: Any
        num_processes: Any
        precision: Any
        world_size: Any
        _launcher: Any
        _parallel_devices: list[torch.device] | None

        # The two have different signatures.
        def _any(self, *args: Any, **kwargs: Any) -> Any: ...

        __init__ = all_gather = backward = prepare_device = reduce_boolean_decision = set_world_ranks = teardown = _any
        predict_step = test_step = training_step = validation_step = _any
        optimizer_step = _configure_launcher = _set_world_ranks = _any

else:
    _Strategy = object

T = TypeVar("T")

# Seconds from the watchdog's last act to SynapseAI's.
_MARGIN = 60.0


class HPUParallelMixin(_Strategy):
    """Part that is the same for the Trainer and for Fabric: devices, process group and failure detection.

    A subclass sets `process_groups` before it calls Lightning's constructor, and calls `create_process_group` in
    Lightning's own hook for it.

    Attributes:
        process_groups: The manager of this strategy's process group.
        saves_alone: Whether a rank needs no other one for a checkpoint.
    """

    process_groups: ProcessGroupManager
    saves_alone = False
    _in_process_launcher: type[Any]
    # Sets the rank by Lightning's method, which has another name in Fabric.
    _set_rank: Callable[[], None]
    # The rank of a process that has joined the others by it is final.
    _has_joined = False

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

    def select_device(self) -> None:
        """Select the device of this rank, before it is opened, and have SynapseAI wait longer than the watchdog."""
        seconds = self.process_groups.timeout.total_seconds()
        if seconds > SYNAPSE_TIMEOUT - _MARGIN:
            # In microseconds.
            hccl.set_environment({"SCAL_TIMEOUT_NO_PROGRESS": str(int((seconds + _MARGIN) * 1e6))})
        hccl.select_device(self.world_size, self.local_rank, self.module_ids)

    def join_ranks(self) -> None:
        """Set the rank of this process and wait for the other ranks."""
        self._set_rank()
        self.process_groups.rendezvous(self.cluster_environment)
        self._has_joined = True

    def setup_hccl_env(self) -> None:
        """Set this process's rank and module for the bridge, before its device is opened; subclasses may extend it."""
        hccl.initialize_hccl(self.world_size, self.global_rank, self.local_rank)

    def create_process_group(self) -> None:
        """Create the default process group unless there is one."""
        self.process_groups.init_process_group(self.cluster_environment)

    def gather_random_states(self, state: Tensor) -> Tensor | None:
        """Return the states of all ranks; None if one has failed: a checkpoint of DDP needs no other rank."""
        try:
            if self.process_groups.leave_if_failed():
                return None
            return self.all_gather(state.to("hpu")).cpu().reshape(-1, state.numel())
        except RankFailedError:
            return None

    def require_ranks(self, name: str) -> None:
        """Raise an error if this rank has failed, and others take part in what is about to begin.

        Raises:
            RankFailedError: Another rank has failed.
            RuntimeError: This rank has failed.
        """
        if not self.saves_alone:
            with self.process_groups.wait(name):
                pass

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute gradients, reduce them over all ranks, and launch the graph of forward and backward (lazy mode)."""
        with self.process_groups.step("backward"):
            return super().backward(*args, **kwargs)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the optimizer's step, with the Trainer's closure."""
        with self.process_groups.step("optimizer step"):
            return super().optimizer_step(*args, **kwargs)

    def all_gather(self, tensor: Tensor, group: Any | None = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, see `hpu_core.collectives`; with `sync_grads`, their gradients flow back."""
        if not dist.is_initialized():
            return tensor
        with self.process_groups.wait("all-gather", group):
            if not sync_grads:
                return collectives.all_gather(tensor, group)
            collectives.check_device(tensor)
            parts: Tensor = super().all_gather(tensor, group, sync_grads)
            return parts

    def broadcast(self, obj: T, src: int = 0) -> T:
        """Return the object of rank `src`; on a rank that has failed and saves alone, its own."""
        if not dist.is_initialized() or (self.saves_alone and self.process_groups.leave_if_failed()):
            return obj
        with self.process_groups.wait("broadcast"):
            return collectives.broadcast(obj, src)

    def barrier(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - Lightning passes a name for its logs.
        """Wait until all ranks are here and their devices have finished all work, unless this rank has failed."""
        if not self.process_groups.leave_if_failed() and dist.is_initialized():
            with self.process_groups.wait("barrier"):
                collectives.barrier(self.process_groups.wait_for_device)

    def reduce_over_ranks(self, tensor: Any, group: Any | None = None, reduce_op: Any = "mean") -> Any:
        """Reduce a tensor over all ranks, in place; anything but a tensor is returned as it is."""
        if not isinstance(tensor, Tensor) or not dist.is_initialized():
            return tensor
        with self.process_groups.wait("all-reduce", group):
            return collectives.all_reduce(tensor, group, reduce_op)

    def teardown(self) -> None:
        """Move everything off the device, and end the watchdog."""
        try:
            super().teardown()
        finally:
            self.process_groups.close()
            hccl.restore_environment()

    def _configure_launcher(self) -> None:
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


class HPUParallelStrategyBase(HPUParallelMixin, HPUStrategy):
    """Base of the Trainer's strategies for several devices; list it before Lightning's strategy."""

    reduce = HPUParallelMixin.reduce_over_ranks  # Lightning's name for it here.

    _in_process_launcher = InProcessLauncher
    _signals: SignalCoordinator | None = None

    def set_world_ranks(self) -> None:
        """Set the rank of this process; Lightning's FSDP strategies call this again after the ranks have joined."""
        if not self._has_joined:
            _rendezvous_env.clear()
            super().set_world_ranks()

    _set_rank = set_world_ranks

    def setup(self, trainer: "Trainer") -> None:
        """Move the module to the device and set it up for training or evaluation."""
        with self.process_groups.step("setup"):
            super().setup(trainer)
        if self.process_groups.watchdog is not None:
            self._signals = SignalCoordinator(trainer, self.process_groups.watchdog)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `training_step`."""
        with self.process_groups.step("training step"):
            return super().training_step(*args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `validation_step`, unless the ranks stop before it."""
        with self._evaluation_step("num_val_batches"):
            return super().validation_step(*args, **kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `test_step`, unless the ranks stop before it."""
        with self._evaluation_step("num_test_batches"):
            return super().test_step(*args, **kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `predict_step`, unless the ranks stop before it."""
        with self._evaluation_step("num_predict_batches"):
            return super().predict_step(*args, **kwargs)

    def _evaluation_step(self, batches: str) -> AbstractContextManager[None]:
        if self._signals is not None:
            self._signals.before_evaluation_batch(getattr(self.lightning_module.trainer, batches))
        return self.process_groups.step("evaluation step")

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the module's state, for which the ranks may need each other."""
        self.require_ranks("checkpoint saving")
        return super().lightning_module_state_dict()

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # noqa: A002 - Lightning's name.
        """Return whether all ranks, or any, decide so; on a rank that has failed, its own decision."""
        if self.process_groups.leave_if_failed():
            return decision
        return bool(super().reduce_boolean_decision(decision, all))

    def teardown(self) -> None:
        """Move everything off the device, which stays with the process until it exits, and end the watchdog."""
        if self._signals is not None:
            self._signals.remove()
            self._signals = None
        super().teardown()


class FabricHPUParallelStrategyBase(HPUParallelMixin, FabricHPUStrategy):
    """Base of Fabric's strategies for several devices; list it before Lightning's strategy."""

    all_reduce = HPUParallelMixin.reduce_over_ranks  # Lightning's name for it here.

    _in_process_launcher = FabricInProcessLauncher

    _handles_sigterm = False
    _received_sigterm = False

    def should_stop(self) -> bool:
        """Return whether all ranks stop here, because one received SIGTERM; all call this before they fetch a batch.

        From the first call on, SIGTERM does not end the process.
        """
        watchdog = self.process_groups.watchdog
        if not self._handles_sigterm:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._handles_sigterm = True
        return self._received_sigterm if watchdog is None else signal.SIGTERM in watchdog.signals_before_batch()

    def _on_sigterm(self, signum: int, frame: Any) -> None:  # noqa: ARG002 - the arguments of a signal handler.
        self._received_sigterm = True
        if self.process_groups.watchdog is not None:
            self.process_groups.watchdog.announce_signal(signum)

    def _set_world_ranks(self) -> None:
        if not self._has_joined:
            _rendezvous_env.clear()
            super()._set_world_ranks()

    _set_rank = _set_world_ranks
