"""The precision plugin of Lightning's Trainer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpu_precision._base import HPUPrecision
from hpu_precision._choice import Choice
from hpu_precision._lightning import GradClipAlgorithmType, HalfPrecision, MixedPrecision, Precision

if TYPE_CHECKING:
    from lightning.fabric.utilities.types import Optimizable
    from lightning.pytorch import LightningModule
    from torch import Tensor
    from torch.optim import Optimizer


class HPUPrecisionPlugin(HPUPrecision, Precision):
    """Trains on Gaudi cards in 32 bit, mixed precision, pure bf16 or fp8.

    `Trainer(accelerator=HPUAccelerator(), strategy=SingleHPUStrategy(), plugins=[HPUPrecisionPlugin("bf16-mixed")])`.

    Under a mixed precision, an op of the bf16 list runs in the lower precision and one of the fp32 list in float32,
    inside the module's steps; what is in no list runs in the type of its inputs. Parameters and optimizer states stay
    in float32. The lists mean the same on every SynapseAI release: HMP applies them where the release has it, autocast
    or this package elsewhere. For the arguments see `HPUPrecision`.
    """

    def convert_input(self, data: Any) -> Any:
        """Convert a batch to the type of the parameters, under "bf16-true"."""
        return self._inner.convert_input(data)

    def pre_backward(self, tensor: "Tensor", module: "LightningModule") -> Any:  # type: ignore[override] # As Lightning.
        """Scale the loss, under fp16.

        Args:
            tensor: The loss, scalar.
            module: The module that made it.
        """
        return self._inner.pre_backward(tensor, module)

    def optimizer_step(  # type: ignore[override] # As Lightning.
        self, optimizer: "Optimizable", model: "LightningModule", closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Run the optimizer's step, in which nothing is cast, also inside a step of the module (manual optimization).

        Args:
            optimizer: The optimizer.
            model: The module to train.
            closure: Computes the loss and its gradients.
            **kwargs: For the optimizer's `step`.
        """
        casting = self._choice.casting
        if casting is None:
            return self._inner.optimizer_step(optimizer, model=model, closure=closure, **kwargs)
        closure = casting.kept(closure)
        with casting.off():
            return self._inner.optimizer_step(optimizer, model=model, closure=closure, **kwargs)

    def clip_gradients(
        self,
        optimizer: "Optimizer",
        clip_val: float = 0.0,
        gradient_clip_algorithm: GradClipAlgorithmType = GradClipAlgorithmType.NORM,
    ) -> None:
        """Clip the gradients, which under fp16 have been unscaled.

        Args:
            optimizer: Whose parameters' gradients are clipped.
            clip_val: The largest norm or value; 0 leaves them alone.
            gradient_clip_algorithm: By norm or by value.
        """
        self._inner.clip_gradients(optimizer, clip_val, gradient_clip_algorithm)

    def _frameworks_own(self, choice: Choice) -> Precision:
        if choice.label == "16-mixed":
            return MixedPrecision("16-mixed", "hpu", choice.scaler)
        if choice.label == "bf16-true":
            if HalfPrecision is None:
                raise NotImplementedError("precision='bf16-true' needs Lightning 2.1 or newer: use 'bf16-mixed'")
            return HalfPrecision("bf16-true")
        return Precision()
