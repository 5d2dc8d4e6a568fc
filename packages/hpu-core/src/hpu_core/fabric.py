"""Training on one Gaudi card with Fabric, and what training on several has in common with it."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from hpu_core import _fabric_2_0, frameworks, hccl
from hpu_core._lightning import FabricSingleDeviceStrategy, FabricStrategy
from hpu_core._strategy_mixin import HPUStrategyMixin, validate_device

if TYPE_CHECKING:
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, Precision
    from lightning.fabric.utilities.types import _DEVICE, Optimizable
    from torch import Tensor
    from torch.nn import Module


# Before, Fabric did not ask the strategy for gradients.
_ASKS_STRATEGY: Final = Version("2.1.dev0")


class FabricHPUStrategy(HPUStrategyMixin, FabricStrategy):
    """What Fabric's strategies for one card and for several have in common, as HPUStrategy has for the Trainer's.

    Derive from it first, then from Lightning's. In lazy mode, the graph is closed after backward and after the
    optimizer's step, as with the Trainer.
    """

    @property
    def precision(self) -> "Precision":
        """Fabric's precision plugin."""
        return super().precision

    @precision.setter
    def precision(self, precision: "Precision | None") -> None:
        if precision is not None and frameworks.current().version < _ASKS_STRATEGY:
            _fabric_2_0.tell_of_backward(self, precision)
        self._precision = precision

    def tensor_init_context(self) -> AbstractContextManager[Any]:
        """Create tensors directly on the card inside the context, as `Fabric.init_tensor` does."""
        self.prepare_device()
        return super().tensor_init_context()

    def module_init_context(self, empty_init: bool | None = None) -> AbstractContextManager[Any]:
        """Create a module directly on the card inside the context, as `Fabric.init_module` does.

        Args:
            empty_init: Whether to leave the weights uninitialised.
        """
        self.prepare_device()
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
        self._mark_step_if_lazy()

    def optimizer_step(self, optimizer: "Optimizable", **kwargs: Any) -> Any:
        """Run the optimizer's step, then close its graph (lazy mode).

        Args:
            optimizer: The optimizer.
            **kwargs: For its `step`.

        Returns:
            What the optimizer's `step` returned.
        """
        result = super().optimizer_step(optimizer, **kwargs)
        self._mark_step_if_lazy()
        return result


class FabricSingleHPUStrategy(FabricHPUStrategy, FabricSingleDeviceStrategy):
    """Fabric's twin of SingleHPUStrategy; its name in Lightning is "hpu_single".

    Args:
        device: "hpu". A process has one card, so there is no index to choose it by; "hpu:0" means the same.
        accelerator: The accelerator, when it is not passed to Fabric.
        checkpoint_io: How checkpoints are written and read; `HPUCheckpointIO` when not given.
        precision: Fabric's precision plugin; 32 bit when not given.

    Raises:
        ValueError: `device` is no HPU, or has an index other than 0.
    """

    strategy_name = "hpu_single"

    def __init__(
        self,
        device: "_DEVICE" = "hpu",
        accelerator: "Accelerator | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision: "Precision | None" = None,
    ) -> None:
        super().__init__(
            device=validate_device(device),
            accelerator=accelerator,
            checkpoint_io=checkpoint_io,
            precision=precision,
        )

    def select_device(self) -> None:
        """Choose a card that HABANA_VISIBLE_MODULES allows."""
        hccl.select_device(modules=self.module_ids)
