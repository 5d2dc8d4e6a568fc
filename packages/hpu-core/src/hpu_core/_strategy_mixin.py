"""What a strategy does about the one card of its process, whether it is the Trainer's or Fabric's."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hpu_core import bridge, frameworks
from hpu_core._lightning import MisconfigurationException, WrappingCheckpointIO
from hpu_core.accelerator import HPUAccelerator
from hpu_core.checkpoint import HPUCheckpointIO

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO
    from lightning.fabric.strategies.registry import _StrategyRegistry
    from lightning.fabric.utilities.types import _DEVICE

    class _Strategy:
        """What is used of Lightning's strategies, the Trainer's and Fabric's."""

        accelerator: Any
        _checkpoint_io: CheckpointIO | None

        def setup_environment(self) -> None: ...

else:
    _Strategy = object


class _AcceleratorError(MisconfigurationException, AssertionError):
    """The accelerator is not an HPUAccelerator. `lightning-habana` raised an AssertionError."""


class HPUStrategyMixin(_Strategy):
    """Stands before one of Lightning's strategies: a process has one card, and its graphs are closed in lazy mode.

    A subclass says by which name Lightning knows it, which card its process takes, and when a graph is closed.
    """

    strategy_name: str

    # Module ids for the local ranks, if the Trainer's or Fabric's `devices` lists cards; set by the connector.
    module_ids: "tuple[int, ...] | None" = None

    # Decided once, in `setup_environment`, so that a step in eager mode pays for nothing.
    _mark_step: Callable[[], None] | None = None

    @property
    def checkpoint_io(self) -> "CheckpointIO":
        """How checkpoints are written and read; `HPUCheckpointIO` unless the user chose otherwise.

        A wrapper such as Lightning's AsyncCheckpointIO gets an HPUCheckpointIO to wrap if it has nothing yet.
        """
        if self._checkpoint_io is None:
            self._checkpoint_io = HPUCheckpointIO()
        elif isinstance(self._checkpoint_io, WrappingCheckpointIO):
            # The wrapper's setter keeps what the user gave it.
            self._checkpoint_io.checkpoint_io = HPUCheckpointIO()
        return self._checkpoint_io

    @checkpoint_io.setter
    def checkpoint_io(self, io: "CheckpointIO") -> None:
        self._checkpoint_io = io

    def setup_environment(self) -> None:
        """Load the Gaudi bridge, choose a card and open it.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator.
            ModuleNotFoundError: The Gaudi bridge is not installed.
            RuntimeError: No card could be opened.
            ValueError: HABANA_VISIBLE_MODULES is malformed.
        """
        self.check_accelerator()
        self.prepare_device()
        self._mark_step = bridge.mark_step_if_lazy()
        super().setup_environment()

    def check_accelerator(self) -> None:
        """Refuse to train with another accelerator, such as the CPU's, which Lightning chooses when it gets none.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator.
        """
        if not isinstance(self.accelerator, HPUAccelerator):
            raise _AcceleratorError(
                f"{type(self).__name__} needs an HPUAccelerator, got {type(self.accelerator).__name__}: pass "
                "`accelerator=hpu_core.HPUAccelerator()` as well"
            )

    def prepare_device(self) -> None:
        """Load the Gaudi bridge, without which torch has no working "hpu", and choose a card.

        Raises:
            ModuleNotFoundError: The Gaudi bridge is not installed.
            ValueError: HABANA_VISIBLE_MODULES is malformed.
        """
        bridge.load()
        self.select_device()

    @abstractmethod
    def select_device(self) -> None:
        """Say which card this process is to open, unless it has one open."""

    @classmethod
    def register_strategies(cls, strategy_registry: "_StrategyRegistry") -> None:
        """Register the strategy by its `strategy_name`, in place of the one that Lightning 2.0 brings along.

        Args:
            strategy_registry: Lightning's `StrategyRegistry`.
        """
        strategy_registry.register(cls.strategy_name, cls, description=cls.__name__, override=True)

    def __repr__(self) -> str:
        return frameworks.describe(self)

    def _mark_step_if_lazy(self) -> None:
        if self._mark_step is not None:
            self._mark_step()


def validate_device(device: "_DEVICE") -> torch.device:
    """Return `torch.device("hpu")`, the only device there is.

    Raises:
        ValueError: `device` is another one.
    """
    try:
        asked = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"`device` must be 'hpu', got {device!r}") from error
    if asked.type != "hpu":
        raise ValueError(f"`device` must be 'hpu', got {str(asked)!r}")
    if asked.index not in {None, 0}:
        raise ValueError(
            f"`device` must be 'hpu' without an index, got {str(asked)!r}: a process sees its one card as 'hpu'; "
            "choose the card with HLS_MODULE_ID before it is opened"
        )
    return torch.device("hpu")


def validate_devices(devices: Sequence[torch.device] | None, strategy: str) -> list[torch.device] | None:
    """Return one `torch.device("hpu")` for each device.

    Args:
        devices: What the user or the Trainer assigned.
        strategy: The class, for the error.

    Raises:
        ValueError: One of them is no HPU, or has an index other than 0.
    """
    if devices is None:
        return None
    try:
        return [validate_device(device) for device in devices]
    except ValueError as error:
        raise ValueError(
            f"{strategy} trains on HPUs only: {error}. Pass `accelerator=hpu_core.HPUAccelerator()` as well, and name "
            "cards with HABANA_VISIBLE_MODULES"
        ) from error
