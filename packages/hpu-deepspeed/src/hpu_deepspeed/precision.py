"""Precision plugins for DeepSpeed."""

from typing import Any, Final

from hpu_deepspeed._lightning import DeepSpeedPrecision, FabricDeepSpeedPrecision

__all__ = ["FabricHPUDeepSpeedPrecision", "HPUDeepSpeedPrecisionPlugin"]

_PRECISIONS: Final = ("32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true")
# The Trainer's aliases from earlier versions of Lightning.
_ALIASES: Final = {"32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}


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
        super().__init__(normalize_precision(precision))


class FabricHPUDeepSpeedPrecision(FabricDeepSpeedPrecision):
    """Precision plugin for Fabric's `HPUDeepSpeedStrategy`.

    Args:
        precision: See HPUDeepSpeedPrecisionPlugin.

    Raises:
        ValueError: `precision` is not supported.
    """

    def __init__(self, precision: Any = "32-true") -> None:
        super().__init__(normalize_precision(precision))


def normalize_precision(precision: object) -> Any:
    """Return Lightning's canonical name of a precision.

    Raises:
        ValueError: DeepSpeed does not support the precision.

    >>> normalize_precision("bf16"), normalize_precision(32), normalize_precision("16-true")
    ('bf16-mixed', '32-true', '16-true')
    """
    name = _ALIASES.get(str(precision), precision)
    if name not in _PRECISIONS:
        advice = (
            ", which DeepSpeed's engine does not have: pass 'bf16-mixed', or train in fp8 with `strategy='hpu_ddp'`"
            if name == "fp8"
            else ""
        )
        raise ValueError(
            f"`precision` must be {', '.join(map(repr, _PRECISIONS[:-1]))} or {_PRECISIONS[-1]!r} with DeepSpeed, got "
            f"{precision!r}{advice}"
        )
    return name
