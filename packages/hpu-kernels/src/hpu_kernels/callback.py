"""Callback that applies the kernels to a LightningModule."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from hpu_core import bridge
from hpu_kernels import attention, clipping, norm, optimizer, replacement, rotary
from hpu_kernels._lightning import Callback, rank_zero_info

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from typing_extensions import Self

    from hpu_kernels._lightning import LightningModule, Trainer

__all__ = ["HPUKernels"]

# By name, what applies a kernel to modules and optimizers, and yields how to undo it.
_KERNELS: Final = {
    "attention": attention.apply,
    "norm": norm.apply,
    "rotary": rotary.apply,
    "clip": clipping.apply,
    "optimizer": optimizer.apply,
}


class HPUKernels(Callback):
    """Kernels of a Gaudi in an unchanged model: a callback of the Trainer, or `apply` with Fabric and plain torch.

    A call is computed by a kernel where that means the same, and by torch otherwise. `print` shows what and why; the
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
        switches = {"attention": attention, "norm": norm, "rotary": rotary, "clip": clip, "optimizer": optimizer}
        self._kernels = [name for name, is_on in switches.items() if is_on]
        self._stack = ExitStack()
        self._is_applied = self._is_logged = False

    def apply(self, model: torch.nn.Module, *optimizers: Any) -> Self:
        """Apply the kernels to a model on the device, and to its optimizers, for Fabric and plain torch.

        Args:
            model: The model, after DDP, FSDP or `Fabric.setup` have wrapped it.
            *optimizers: Its optimizers.

        Returns:
            Itself, whose `undo` undoes it, as does the end of a `with` block.
        """
        if any(replacement.is_on_card(each) for each in model.parameters()):
            self._apply(model, optimizers)
        return self

    def _apply(self, model: torch.nn.Module, optimizers: Iterable[Any]) -> None:
        if os.environ.get("HPU_KERNELS") == "0":
            return
        modules, optimizers = list(model.modules()), list(optimizers)
        self._stack.callback(replacement.register())
        for name in self._kernels:
            for undo in _KERNELS[name](modules, optimizers):
                self._stack.callback(undo)

    def undo(self) -> None:
        """Have torch compute all again. Further calls do nothing."""
        self._stack.close()
        self._is_applied = self._is_logged = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __str__(self) -> str:
        rows = [f"{n:6}  {kind}: {outcome}" for (kind, outcome), n in sorted(replacement.calls.items())]
        name = f"hpu-kernels{' (simulated)' if bridge.is_simulated() else ''}:"
        return "\n".join((name, *(rows or ["  no calls until now"])))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Apply the kernels, unless they are; the strategy has wrapped the module and made the optimizers."""
        # Its parameters may be offloaded, so they do not tell where it computes.
        if not self._is_applied and trainer.strategy.root_device.type == "hpu":
            self._is_applied = True
            self._apply(trainer.model or pl_module, trainer.optimizers)

    on_validation_start = on_test_start = on_predict_start = on_fit_start

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Log the table after the first batch, whose calls are those of all."""
        if self._is_applied and not self._is_logged:
            self._is_logged = True
            rank_zero_info(str(self))

    def teardown(self, *_: Any, **__: Any) -> None:
        """Undo it."""
        self.undo()

    def on_exception(self, *_: Any, **__: Any) -> None:
        """Undo it, because the model may be used again."""
        self.undo()
