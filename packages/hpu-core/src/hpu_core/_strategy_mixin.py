"""Base of the strategies for the Trainer and for Fabric: device selection, checkpoints and graph launches."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hpu_core import bridge, frameworks, hccl
from hpu_core._lightning import MisconfigurationException, WrappingCheckpointIO
from hpu_core.accelerator import HPUAccelerator
from hpu_core.checkpoint import HPUCheckpointIO

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO
    from lightning.fabric.strategies.registry import _StrategyRegistry
    from lightning.fabric.utilities.types import _DEVICE

    class _Strategy:
        """Part of Lightning's strategies, the Trainer's and Fabric's, that is used here."""

        accelerator: Any
        _checkpoint_io: CheckpointIO | None

        def optimizer_step(self, *args: Any, **kwargs: Any) -> Any: ...
        def setup_environment(self) -> None: ...
        def tensor_init_context(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    _Strategy = object


class _AcceleratorError(MisconfigurationException, AssertionError):
    """The accelerator is not an HPUAccelerator. `lightning-habana` raised an AssertionError."""


class HPUStrategyMixin(_Strategy):
    """Mixin for strategies on HPU; list it before Lightning's strategy.

    A subclass defines the name under which it is registered, and launches graphs in lazy mode. The device is one that
    `devices` or HABANA_VISIBLE_MODULES allows; a subclass for several devices selects that of the rank.
    """

    strategy_name: str

    # Module ids for the local ranks, if the Trainer's or Fabric's `devices` lists cards; set by the connector.
    module_ids: "tuple[int, ...] | None" = None

    # Set once in `setup_environment`; None in eager mode, which costs nothing per step.
    _mark_step: Callable[[], None] | None = None

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
        """Wait for the other ranks, open this rank's device and create the process group.

        Each step has one owner: `check_accelerator`, `join_ranks`, `prepare_device`, `setup_hccl_env`, and Lightning's
        own set-up, which opens the device and creates the process group.

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
        self._mark_step = bridge.mark_step_if_lazy()
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

    def prepare_device(self) -> None:
        """Load the Gaudi bridge, which torch needs for "hpu", and select the device."""
        bridge.load()
        self.select_device()

    def setup_hccl_env(self) -> None:
        """Set this process's rank for the bridge, before its device is opened; a strategy for one device has none."""

    def select_device(self) -> None:
        """Select the device that this process will open, unless it has opened one."""
        hccl.select_device(modules=self.module_ids)

    def tensor_init_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return Lightning's context that creates tensors on the device.

        `Trainer.init_module` and `Fabric.init_tensor` may precede `setup_environment`.
        """
        self.prepare_device()
        return super().tensor_init_context(*args, **kwargs)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run Lightning's optimizer step, with the Trainer's closure, then launch its graph (lazy mode)."""
        result = super().optimizer_step(*args, **kwargs)
        self._mark_step_if_lazy()
        return result

    @classmethod
    def register_strategies(cls, strategy_registry: "_StrategyRegistry") -> None:
        """Register the strategy under its `strategy_name` with Lightning's registry, replacing Lightning 2.0's own."""
        strategy_registry.register(cls.strategy_name, cls, description=cls.__name__, override=True)

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
