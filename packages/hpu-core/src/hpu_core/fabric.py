"""Training on one Gaudi card with Fabric."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from hpu_core import bridge, frameworks, hccl
from hpu_core._lightning import FabricSingleDeviceStrategy, MisconfigurationException
from hpu_core.accelerator import HPUAccelerator
from hpu_core.checkpoint import HPUCheckpointIO
from hpu_core.strategy import checked_device

if TYPE_CHECKING:
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, Precision
    from lightning.fabric.strategies.registry import _StrategyRegistry
    from lightning.fabric.utilities.types import _DEVICE, Optimizable
    from torch import Tensor
    from torch.nn import Module


class FabricSingleHPUStrategy(FabricSingleDeviceStrategy):
    """Fabric's twin of SingleHPUStrategy; its name in Lightning is "hpu_single".

    In lazy mode, the graph is closed after backward and after the optimizer's step, as with the Trainer.

    Args:
        device: "hpu". A process has one card, so there is no index to choose it by; "hpu:0" means the same.
        accelerator: The accelerator, when it is not passed to Fabric.
        checkpoint_io: How checkpoints are written and read; `HPUCheckpointIO` when not given.
        precision: Fabric's precision plugin; 32 bit when not given.

    Raises:
        ValueError: `device` is no HPU, or has an index other than 0.
    """

    strategy_name = "hpu_single"

    # Decided once, in `setup_environment`, so that a step in eager mode pays for nothing.
    _mark_step: Callable[[], None] | None = None

    def __init__(
        self,
        device: "_DEVICE" = "hpu",
        accelerator: "Accelerator | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision: "Precision | None" = None,
    ) -> None:
        super().__init__(
            device=checked_device(device),
            accelerator=accelerator,
            checkpoint_io=checkpoint_io,
            precision=precision,
        )

    @property
    def checkpoint_io(self) -> "CheckpointIO":
        """How checkpoints are written and read; `HPUCheckpointIO` unless the user chose otherwise."""
        if self._checkpoint_io is None:
            self._checkpoint_io = HPUCheckpointIO()
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
        if not isinstance(self.accelerator, HPUAccelerator):
            raise MisconfigurationException(
                f"{type(self).__name__} needs an HPUAccelerator, got {type(self.accelerator).__name__}: pass "
                "`accelerator='hpu'` to Fabric"
            )
        self._prepare_card()
        self._mark_step = bridge.mark_step_if_lazy()
        super().setup_environment()

    def tensor_init_context(self) -> AbstractContextManager[Any]:
        """Create tensors directly on the card inside the context, as `Fabric.init_tensor` does."""
        self._prepare_card()
        return super().tensor_init_context()

    def module_init_context(self, empty_init: bool | None = None) -> AbstractContextManager[Any]:
        """Create a module directly on the card inside the context, as `Fabric.init_module` does.

        Args:
            empty_init: Whether to leave the weights uninitialised.
        """
        self._prepare_card()
        return super().module_init_context(empty_init)

    def backward(self, tensor: "Tensor", module: "Module | None", *args: Any, **kwargs: Any) -> None:
        """Compute gradients, then close the graph of forward and backward (lazy mode).

        Args:
            tensor: The loss, scalar.
            module: The module, for the precision plugin.
            *args: For the precision plugin.
            **kwargs: For the precision plugin.
        """
        super().backward(tensor, module, *args, **kwargs)
        self._close_graph()

    def optimizer_step(self, optimizer: "Optimizable", **kwargs: Any) -> Any:
        """Run the optimizer's step, then close its graph (lazy mode).

        Args:
            optimizer: The optimizer.
            **kwargs: For its `step`.

        Returns:
            What the optimizer's `step` returned.
        """
        result = super().optimizer_step(optimizer, **kwargs)
        self._close_graph()
        return result

    @classmethod
    def register_strategies(cls, strategy_registry: "_StrategyRegistry") -> None:
        """Register the strategy by its `strategy_name`.

        Args:
            strategy_registry: Fabric's `STRATEGY_REGISTRY`.
        """
        strategy_registry.register(cls.strategy_name, cls, description=cls.__name__, override=True)

    def __repr__(self) -> str:
        return frameworks.describe(self)

    def _prepare_card(self) -> None:
        bridge.load()
        hccl.choose_card()

    def _close_graph(self) -> None:
        if self._mark_step is not None:
            self._mark_step()
