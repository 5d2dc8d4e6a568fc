"""Precision plugins for DeepSpeed."""

from typing import Any

from hpu_core.plugins import normalize_precision
from hpu_deepspeed._lightning import DeepSpeedPrecision, FabricDeepSpeedPrecision

__all__ = ["FabricHPUDeepSpeedPrecision", "HPUDeepSpeedPrecisionPlugin"]


class HPUDeepSpeedPrecisionPlugin(DeepSpeedPrecision):
    """Precision plugin for `HPUDeepSpeedStrategy`.

    DeepSpeed's engine implements backward, optimizer step, loss scaling and gradient clipping. With "bf16-mixed", it
    keeps the module's weights in bfloat16 and the optimizer's in float32, and does not use autocast. Lightning's
    DeepSpeedPrecision works as well.

    Args:
        precision: "32-true", "bf16-mixed", "bf16-true", "16-mixed" or "16-true"; also "32", "bf16" and "16", as in the
            Trainer. float16 needs Gaudi 2 or newer.
        device: "hpu"; Lightning's plugins for mixed precision have the same argument.

    Raises:
        ValueError: `precision` or `device` is not supported.
    """

    def __init__(self, precision: Any = "32-true", device: str = "hpu") -> None:
        if device != "hpu":
            raise ValueError(f"`device` must be 'hpu', got {device!r}")
        super().__init__(normalize_precision(precision, "DeepSpeed"))


class FabricHPUDeepSpeedPrecision(FabricDeepSpeedPrecision):
    """Precision plugin for Fabric's `HPUDeepSpeedStrategy`, with the precisions of HPUDeepSpeedPrecisionPlugin."""

    def __init__(self, precision: Any = "32-true") -> None:
        super().__init__(normalize_precision(precision, "DeepSpeed"))
