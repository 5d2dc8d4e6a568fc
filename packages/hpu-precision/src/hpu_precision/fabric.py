"""The precision plugin of Lightning Fabric."""

from typing import TYPE_CHECKING, Any

from hpu_precision._base import HPUPrecision
from hpu_precision._choice import Choice
from hpu_precision._lightning import FabricHalfPrecision, FabricMixedPrecision, FabricPrecision

if TYPE_CHECKING:
    from lightning.fabric.utilities.types import Optimizable
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer


class FabricHPUPrecision(HPUPrecision, FabricPrecision):
    """What `HPUPrecisionPlugin` is to the Trainer: `Fabric(plugins=[FabricHPUPrecision("bf16-mixed")], ...)`.

    Casts hold inside `forward` of the modules that Fabric has set up, and inside `fabric.autocast()`. As with Fabric's
    own plugins, outputs of a module come out in float32. Unlike there, inputs go in as they are, so that an op of the
    fp32 list gets all of their digits. For the arguments see `HPUPrecision`.
    """

    def convert_input(self, data: Any) -> Any:
        """Convert a module's inputs to the type of its parameters, under "bf16-true"."""
        return data if self._choice.casting is not None else self._inner.convert_input(data)

    def convert_output(self, data: Any) -> Any:
        """Convert a module's outputs to torch's default type, float32 unless it was changed."""
        return self._inner.convert_output(data)

    def backward(self, tensor: "Tensor", model: "Module | None", *args: Any, **kwargs: Any) -> None:
        """Compute the gradients, of the scaled loss under fp16.

        Args:
            tensor: The loss, scalar.
            model: The module that made it.
            *args: For `Tensor.backward`.
            **kwargs: For `Tensor.backward`.
        """
        self._inner.backward(tensor, model, *args, **kwargs)

    def optimizer_step(self, optimizer: "Optimizable", **kwargs: Any) -> Any:
        """Run the optimizer's step.

        Args:
            optimizer: The optimizer.
            **kwargs: For its `step`.
        """
        return self._inner.optimizer_step(optimizer, **kwargs)

    def unscale_gradients(self, optimizer: "Optimizer") -> None:
        """Unscale the gradients before they are clipped, under fp16.

        Args:
            optimizer: Whose parameters' gradients are unscaled.
        """
        self._inner.unscale_gradients(optimizer)

    def _frameworks_own(self, choice: Choice) -> FabricPrecision:
        if choice.label == "32-true":
            return FabricPrecision()
        if choice.label == "bf16-true":
            if FabricHalfPrecision is None:
                raise NotImplementedError("precision='bf16-true' needs Lightning 2.1 or newer: use 'bf16-mixed'")
            return FabricHalfPrecision("bf16-true")
        # What Fabric does around a module is the same for both low types and for fp8.
        return FabricMixedPrecision("bf16-mixed" if choice.scaler is None else "16-mixed", "hpu", choice.scaler)
