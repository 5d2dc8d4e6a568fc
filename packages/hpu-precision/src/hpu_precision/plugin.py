"""Precision plugin of the Trainer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpu_core import casts
from hpu_precision._base import HPUPrecisionBase
from hpu_precision._lightning import GradClipAlgorithmType, HalfPrecision, MixedPrecision, Precision
from hpu_precision._resolver import ResolvedPrecision

if TYPE_CHECKING:
    from lightning.fabric.utilities.types import Optimizable
    from lightning.pytorch import LightningModule
    from torch import Tensor
    from torch.optim import Optimizer

__all__ = ["HPUPrecisionPlugin"]


class HPUPrecisionPlugin(HPUPrecisionBase, Precision):
    """Precision plugin for HPUs: 32 bit, mixed precision, pure bf16 and fp16, and fp8.

    In mixed precision, operators of the bf16 list run in the lower precision and those of the fp32 list in float32,
    inside the module's steps. Others run in the dtype of their inputs. Parameters and optimizer states stay in float32.
    The lists have the same effect on every SynapseAI release: HMP applies them where the release has it; otherwise
    autocast or this package does.

    `Trainer(accelerator=HPUAccelerator(), strategy=SingleHPUStrategy(), plugins=[HPUPrecisionPlugin("bf16-mixed")])`.

    Args:
        precision: 32 (or "32", "32-true"), 16 (or "16", "16-mixed"), "bf16" (or "bf16-mixed"), "bf16-true", "16-true"
            or "fp8".
            The README has a table of what each means on which release and generation.
        device: "hpu"; Lightning's plugins for mixed precision have the same argument.
        opt_level: HMP's optimization level, "O1", which uses the op lists.
        verbose: Whether to log the dtype in which each op runs, once per op.
        bf16_file_path: Text file with op names for the lower precision, one per line; the default list if None. With
            such a list, the lower precision is bfloat16 even with `precision=16`.
        fp32_file_path: Text file with op names for float32; the default list if None.
        bf16_ops: Op names for the lower precision, instead of a file.
        fp32_ops: Op names for float32, instead of a file.
        hmp_params: The same options as a dict with "level", "verbose", "bf16_ops" and "fp32_ops"; the latter two are
            paths or names.
        scaler: Gradient scaler for float16; `torch.amp.GradScaler("hpu")` if None.

    Raises:
        ValueError: An argument is invalid or contradicts another one; `OpListError` for op lists.
        TypeError: An argument is of the wrong type.
        NotImplementedError: The devices, torch or Lightning do not support the precision.
    """

    _delegate: Precision

    def convert_input(self, data: Any) -> Any:
        """Convert a batch to the dtype of the parameters, with "bf16-true" and "16-true"."""
        return self._delegate.convert_input(data)

    def pre_backward(self, tensor: "Tensor", module: "LightningModule") -> Any:  # type: ignore[override] # As Lightning.
        """Scale the loss, a scalar, with "16-mixed"."""
        return self._delegate.pre_backward(tensor, module)

    def optimizer_step(  # type: ignore[override] # As Lightning.
        self, optimizer: "Optimizable", model: "LightningModule", closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Run the optimizer step."""
        return self._delegate.optimizer_step(optimizer, model=model, closure=closure, **kwargs)

    @casts.without
    def clip_gradients(
        self,
        optimizer: "Optimizer",
        clip_val: float = 0.0,
        gradient_clip_algorithm: GradClipAlgorithmType = GradClipAlgorithmType.NORM,
    ) -> None:
        """Clip the gradients, which are unscaled already, by norm or by value; a maximum of 0 disables clipping.

        Nothing is cast, also where a module with manual optimization clips inside of its step.
        """
        self._delegate.clip_gradients(optimizer, clip_val, gradient_clip_algorithm)

    def _make_delegate(self, resolved: ResolvedPrecision) -> Precision:
        if resolved.name == "16-mixed":
            return MixedPrecision("16-mixed", "hpu", resolved.scaler)
        if resolved.name in {"16-true", "bf16-true"}:
            return HalfPrecision(resolved.name)
        return Precision()
