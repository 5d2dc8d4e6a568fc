"""Precision plugins for DeepSpeed."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from hpu_core.fp8 import FP8PrecisionMixin, installed_precision
from hpu_core.plugins import normalize_precision
from hpu_deepspeed._lightning import DeepSpeedPrecision, FabricDeepSpeedPrecision

if TYPE_CHECKING:
    from torch.nn import Module

    from hpu_core.plugins import Api

    class _Precision:
        """Part of Lightning's precision plugins that is used here."""

        def __init__(self, precision: Any) -> None: ...
        def convert_module(self, module: Module) -> Module: ...
        def forward_context(self) -> AbstractContextManager[Any]: ...

else:
    _Precision = object

__all__ = ["FabricHPUDeepSpeedPrecision", "HPUDeepSpeedPrecisionPlugin"]


class _FP8Precision(FP8PrecisionMixin, _Precision):
    """Mixin with the layers of the transformer engine, in a module that DeepSpeed keeps in bf16."""

    _api: "Api"

    def __init__(self, precision: Any = "32-true") -> None:
        name = normalize_precision(precision, "DeepSpeed")
        super().__init__("bf16-mixed" if name == "fp8" else name)
        self.precision = name
        self.fp8_plugin = installed_precision(name, self._api) if name == "fp8" else None

    def convert_module(self, module: "Module") -> "Module":
        """Convert the parameters with "bf16-true" and "16-true"; prepare the layers of the engine with "fp8"."""
        if self.fp8_plugin is not None:
            self.fp8_plugin.convert_module(module)
        return super().convert_module(module)

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return the context of a module's step, which casts nothing by autocast."""
        return super().forward_context() if self.fp8_plugin is None else self.fp8_plugin.fp8_context()


class HPUDeepSpeedPrecisionPlugin(_FP8Precision, DeepSpeedPrecision):
    """Precision plugin for `HPUDeepSpeedStrategy`.

    DeepSpeed's engine implements backward, optimizer step, loss scaling and gradient clipping. With "bf16-mixed", it
    keeps the module's weights in bfloat16 and the optimizer's in float32, and does not use autocast. Lightning's
    DeepSpeedPrecision works as well. "fp8" is the same with the transformer engine's layers, see `convert_modules`.

    Args:
        precision: "32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true" or "fp8"; also "32", "bf16" and "16", as
            in the Trainer. float16 and fp8 need Gaudi 2 or newer, and fp8 needs hpu-precision.
        device: "hpu"; Lightning's plugins for mixed precision have the same argument.

    Raises:
        ModuleNotFoundError: `precision` is "fp8", and hpu-precision is not installed.
        ValueError: `precision` or `device` is not supported.
    """

    _api = "pytorch"

    def __init__(self, precision: Any = "32-true", device: str = "hpu") -> None:
        if device != "hpu":
            raise ValueError(f"`device` must be 'hpu', got {device!r}")
        super().__init__(precision)


class FabricHPUDeepSpeedPrecision(_FP8Precision, FabricDeepSpeedPrecision):
    """Precision plugin for Fabric's `HPUDeepSpeedStrategy`, with the precisions of HPUDeepSpeedPrecisionPlugin."""

    _api = "fabric"
