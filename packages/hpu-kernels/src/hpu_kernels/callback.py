"""Callback that applies the kernels to a LightningModule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_kernels._lightning import Callback, rank_zero_info
from hpu_kernels.application import Application

if TYPE_CHECKING:
    import torch

    from hpu_kernels._lightning import LightningModule, Trainer
    from hpu_kernels.replacement import Row

__all__ = ["HPUKernels"]


class HPUKernels(Callback):
    """Kernels of a Gaudi in an unchanged model: a callback of the Trainer, or `apply` with Fabric and plain torch.

    A call is computed by a kernel where that means the same, and by torch otherwise. The table says what and why; the
    Trainer logs it after the first batch. On other devices, and with HPU_KERNELS=0, nothing happens.

    Args:
        attention: Whether `scaled_dot_product_attention` is computed by FusedSDPA.
        optimizer: Whether torch's AdamW, Adam, SGD and Adagrad step by FusedAdamW, FusedSGD and FusedAdagrad.
        norm: Whether modules that compute an RMS norm do so by FusedRMSNorm.
        rotary: Whether transformers' rotary embeddings are computed by the bridge's kernel.
        clip: Whether gradients are clipped by norm by FusedClipNorm.
    """

    def __init__(
        self,
        *,
        attention: bool = True,
        optimizer: bool = True,
        norm: bool = True,
        rotary: bool = True,
        clip: bool = True,
    ) -> None:
        switches = {"attention": attention, "optimizer": optimizer, "norm": norm, "rotary": rotary, "clip": clip}
        self._kernels = [name for name, is_on in switches.items() if is_on]
        self._application: Application | None = None
        self._is_logged = False

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows of the table of this training or evaluation; empty outside of one."""
        return () if self._application is None else self._application.rows

    def apply(self, model: torch.nn.Module, *optimizers: Any) -> Application:
        """Apply the kernels to a model on the device, and to its optimizers, for Fabric and plain torch.

        Args:
            model: The model, after DDP, FSDP or `Fabric.setup` have wrapped it.
            *optimizers: Its optimizers.

        Returns:
            The application; `print` shows its table, and `undo()` undoes it.
        """
        return Application(model, optimizers, self._kernels)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Apply the kernels, unless they are; the strategy has wrapped the module and made the optimizers."""
        if self._application is None and trainer.strategy.root_device.type == "hpu":
            self._is_logged = False
            # Its parameters may be offloaded.
            self._application = Application(pl_module, trainer.optimizers, self._kernels, is_on_card=True)

    on_validation_start = on_test_start = on_predict_start = on_fit_start

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the table after the first batch, whose calls are those of all."""
        del trainer, pl_module, outputs, batch, batch_idx
        if self._application is not None and not self._is_logged:
            self._is_logged = True
            rank_zero_info(str(self._application))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Undo it."""
        del trainer, pl_module, stage
        self._finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Undo it, because the model may be used again."""
        del trainer, pl_module, exception
        self._finish()

    def _finish(self) -> None:
        if self._application is not None:
            self._application.undo()
            self._application = None
