"""Training on one Gaudi card, and what training on several has in common with it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from hpu_core import hccl
from hpu_core._lightning import MisconfigurationException, SingleDeviceStrategy, Strategy
from hpu_core._strategy_mixin import HPUStrategyMixin, validate_device

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO
    from lightning.fabric.utilities.types import _DEVICE
    from lightning.pytorch import LightningModule
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.precision import Precision
    from lightning.pytorch.utilities.types import STEP_OUTPUT
    from torch.optim import Optimizer


class HPUStrategy(HPUStrategyMixin, Strategy):
    """What strategies for one card and for several have in common: derive from it first, then from Lightning's.

    In lazy mode, a training step is two graphs: forward and backward; then gradient clipping and the optimizer. The
    graph is closed after backward (also with manual optimisation), after the optimizer's step, before each validation,
    test and predict step, and after validation. In eager mode nothing is called.
    """

    @contextmanager
    def tensor_init_context(self, empty_init: bool | None = None) -> Iterator[None]:
        """Create tensors directly on the card inside the context, as `Trainer.init_module` does.

        Args:
            empty_init: Whether to leave the weights uninitialised.
        """
        # `init_module` (Lightning 2.1 and newer) comes before `setup_environment`.
        self.prepare_device()
        with super().tensor_init_context(empty_init):
            yield

    def post_backward(self, closure_loss: torch.Tensor) -> None:
        """Close the graph of forward and backward (lazy mode).

        Lightning 2 calls this after each backward, also after `manual_backward`.

        Args:
            closure_loss: The loss, scalar.
        """
        super().post_backward(closure_loss)
        self._mark_step_if_lazy()

    def optimizer_step(
        self,
        optimizer: "Optimizer",
        closure: Callable[[], Any],
        model: "LightningModule | torch.nn.Module | None" = None,
        **kwargs: Any,
    ) -> Any:
        """Run the closure (forward, backward) and the optimizer's step, then close the step's graph (lazy mode).

        Args:
            optimizer: The optimizer.
            closure: Computes the loss and its gradients.
            model: The module whose hooks run, the Trainer's when not given.
            **kwargs: For the optimizer's `step`.

        Returns:
            What the optimizer's `step` returned.
        """
        result = super().optimizer_step(optimizer, closure, model, **kwargs)
        self._mark_step_if_lazy()
        return result

    def validation_step(self, *args: Any, **kwargs: Any) -> "STEP_OUTPUT":
        """Close the graph so far (lazy mode), then run the module's `validation_step`."""
        self._mark_step_if_lazy()
        return super().validation_step(*args, **kwargs)

    def on_validation_end(self) -> None:
        """Close the last validation step's graph (lazy mode), which would become a part of the next training step's."""
        super().on_validation_end()
        self._mark_step_if_lazy()

    def test_step(self, *args: Any, **kwargs: Any) -> "STEP_OUTPUT":
        """Close the graph so far (lazy mode), then run the module's `test_step`."""
        self._mark_step_if_lazy()
        return super().test_step(*args, **kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Close the graph so far (lazy mode), then run the module's `predict_step`."""
        self._mark_step_if_lazy()
        return super().predict_step(*args, **kwargs)


class SingleHPUStrategy(HPUStrategy, SingleDeviceStrategy):
    """Trains on the one Gaudi card of this process; its name in Lightning is "hpu_single".

    Args:
        device: "hpu". A process has one card, so there is no index to choose it by; "hpu:0" means the same.
        accelerator: The accelerator, when it is not passed to the Trainer.
        checkpoint_io: How checkpoints are written and read; `HPUCheckpointIO` when not given.
        precision_plugin: Lightning's precision plugin; 32 bit when not given.

    Raises:
        ValueError: `device` is no HPU, or has an index other than 0.
    """

    strategy_name = "hpu_single"

    def __init__(
        self,
        device: "_DEVICE" = "hpu",
        accelerator: "Accelerator | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision_plugin: "Precision | None" = None,
    ) -> None:
        super().__init__(
            device=validate_device(device),
            accelerator=accelerator,
            checkpoint_io=checkpoint_io,
            precision_plugin=precision_plugin,
        )

    @property
    def parallel_devices(self) -> list[torch.device]:
        """Empty, which makes the Trainer assign the devices it was asked for; more than one is refused.

        Raises:
            MisconfigurationException: On assigning, several devices. Lightning's own single-device strategy would
                train on one of them without a word.
        """
        return []

    @parallel_devices.setter
    def parallel_devices(self, devices: Sequence[torch.device]) -> None:
        if len(devices) > 1:
            raise MisconfigurationException(
                f"SingleHPUStrategy trains on one card, and the Trainer was asked for {len(devices)}: pass "
                "`devices=1`, or a strategy for several cards"
            )

    def select_device(self) -> None:
        """Choose a card that HABANA_VISIBLE_MODULES allows."""
        hccl.select_device(modules=self.module_ids)
