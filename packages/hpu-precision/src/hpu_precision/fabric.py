"""Precision plugin of Fabric."""

from typing import TYPE_CHECKING, Any

from hpu_precision._base import HPUPrecisionBase
from hpu_precision._lightning import FabricHalfPrecision, FabricMixedPrecision, FabricPrecision
from hpu_precision._resolver import ResolvedPrecision

if TYPE_CHECKING:
    from lightning.fabric.utilities.types import Optimizable
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

__all__ = ["FabricHPUPrecision", "HPUPrecisionPlugin"]


class FabricHPUPrecision(HPUPrecisionBase, FabricPrecision):
    """Precision plugin for HPUs with Fabric: `Fabric(plugins=[FabricHPUPrecision("bf16-mixed")], ...)`.

    Casts apply inside `forward` of modules that Fabric has set up, and inside `fabric.autocast()`. As with Fabric's own
    plugins, the outputs of a module are converted to float32. Unlike there, its inputs are not converted, so an op of
    the fp32 list gets their full precision. The arguments are those of the Trainer's HPUPrecisionPlugin.
    """

    def convert_input(self, data: Any) -> Any:
        """Convert a module's inputs to the dtype of its parameters, with "bf16-true" and "16-true"."""
        return data if self._resolved.autocast is not None else self._delegate.convert_input(data)

    def convert_output(self, data: Any) -> Any:
        """Convert a module's outputs to torch's default dtype."""
        return self._delegate.convert_output(data)

    def backward(self, tensor: "Tensor", model: "Module | None", *args: Any, **kwargs: Any) -> None:
        """Run the backward pass of the loss, a scalar, which is scaled with "16-mixed"."""
        self._delegate.backward(tensor, model, *args, **kwargs)

    def optimizer_step(self, optimizer: "Optimizable", **kwargs: Any) -> Any:
        """Run the optimizer step."""
        return self._delegate.optimizer_step(optimizer, **kwargs)

    def unscale_gradients(self, optimizer: "Optimizer") -> None:
        """Unscale the gradients before clipping, with "16-mixed"."""
        self._delegate.unscale_gradients(optimizer)

    def _make_delegate(self, resolved: ResolvedPrecision) -> FabricPrecision:
        if resolved.name == "32-true":
            return FabricPrecision()
        if resolved.name in {"16-true", "bf16-true"}:
            return FabricHalfPrecision(resolved.name)
        # Fabric's conversions of inputs and outputs are the same for bfloat16, float16 and fp8.
        return FabricMixedPrecision("bf16-mixed" if resolved.scaler is None else "16-mixed", "hpu", resolved.scaler)


# The name of the Trainer's plugin, as Lightning's plugins have the same name in both namespaces.
HPUPrecisionPlugin = FabricHPUPrecision
