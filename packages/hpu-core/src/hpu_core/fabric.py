"""Strategy for one Gaudi device with Fabric, and the base of Fabric's strategies on HPU."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from hpu_core import _lightning_2_0, frameworks
from hpu_core._lightning import FabricSingleDeviceStrategy, FabricStrategy
from hpu_core._model_checks import check_model
from hpu_core._random_states import FabricRandomStatesMixin
from hpu_core._strategy_mixin import HPUStrategyMixin, validate_device

if TYPE_CHECKING:
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, Precision
    from lightning.fabric.utilities.types import _DEVICE
    from torch import Tensor
    from torch.nn import Module


class FabricHPUStrategy(FabricRandomStatesMixin, HPUStrategyMixin, FabricStrategy):
    """Base of Fabric's strategies on HPU; list it before Lightning's strategy.

    In lazy mode, the graph is launched after the backward pass and after the optimizer step, as with the Trainer.
    """

    # Whether the device of this process has been chosen, which tensors call "hpu:0".
    _has_device: bool = False

    @property
    def root_device(self) -> torch.device:
        """Device of this process, which has an index once it is set up, as that of tensors.

        torch takes "hpu" and "hpu:0" for different devices.
        """
        if self._has_device:
            return torch.device("hpu", 0)
        return super().root_device  # type: ignore[safe-super] # that of Lightning's strategy, which follows this class

    def setup_environment(self) -> None:
        """Set the process up as HPUStrategyMixin does; tensors call its device "hpu:0" from then on."""
        super().setup_environment()
        self._has_device = True
        if _lightning_2_0.applies_to(frameworks.current().version):
            _lightning_2_0.route_backward_through_strategy(self, self.precision)

    def module_to_device(self, module: "Module") -> None:
        """Move a module to the device. Fabric may do so on a single device before it is launched.

        Raises:
            ValueError: A parameter or buffer is complex, or an embedding's gradients are sparse; the message names it.
        """
        check_model(module)
        self.prepare_device()
        self._has_device = True
        super().module_to_device(module)  # type: ignore[safe-super] # that of Lightning's strategy, which follows this class

    def module_init_context(self, empty_init: bool | None = None) -> AbstractContextManager[Any]:
        """Return Lightning's context that creates a module on the device, for `Fabric.init_module`."""
        self.prepare_device()
        return super().module_init_context(empty_init)

    def backward(self, tensor: "Tensor", module: "Module | None", *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of a loss, then launch the graph of the forward and backward pass (lazy mode)."""
        super().backward(tensor, module, *args, **kwargs)
        self._mark_step_if_lazy()


class FabricSingleHPUStrategy(FabricHPUStrategy, FabricSingleDeviceStrategy):
    """Fabric strategy for training on one HPU, registered as "hpu_single".

    Args:
        device: "hpu" or "hpu:0". A process has one device, so other indices are invalid.
        accelerator: The accelerator, if it is not passed to Fabric.
        checkpoint_io: Plugin that writes and reads checkpoints; `HPUCheckpointIO` if None.
        precision: Fabric's precision plugin; 32-bit if None.

    Raises:
        ValueError: `device` is not an HPU, or has an index other than 0.
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
