"""The precisions that DeepSpeed trains in."""

from typing import Any, Final

from hpu_deepspeed._lightning import DeepSpeedPrecision, FabricDeepSpeedPrecision

_PRECISIONS: Final = ("32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true")
# What Lightning's Trainer makes of the spellings of its earlier versions.
_SPELLINGS: Final = {"32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}


class HPUDeepSpeedPrecisionPlugin(DeepSpeedPrecision):
    """Leaves precision to DeepSpeed's engine: backward, step, loss scaling and clipping of gradients are its own.

    In "bf16-mixed", DeepSpeed keeps the module's weights in bfloat16 and the optimizer's in float32; nothing is
    autocast. The same as Lightning's DeepSpeedPrecision, which works as well.

    Args:
        precision: "32-true", "bf16-mixed", "bf16-true", "16-mixed" or "16-true"; "32", "bf16" and "16" as in the
            Trainer. float16 needs a Gaudi 2 or newer.
        device: "hpu", which Lightning's plugins for mixed precision are told, too.

    Raises:
        ValueError: `precision` or `device` is another one.
    """

    def __init__(self, precision: Any = "32-true", device: str = "hpu") -> None:
        if device != "hpu":
            raise ValueError(f"`device` must be 'hpu', got {device!r}")
        super().__init__(spelled(precision))


class FabricHPUDeepSpeedPrecision(FabricDeepSpeedPrecision):
    """Fabric's twin of HPUDeepSpeedPrecisionPlugin.

    Args:
        precision: As HPUDeepSpeedPrecisionPlugin's.
    """

    def __init__(self, precision: Any = "32-true") -> None:
        super().__init__(spelled(precision))


def spelled(precision: object) -> Any:
    """Return a precision as Lightning spells it.

    Raises:
        ValueError: DeepSpeed does not train in it.

    >>> spelled("bf16"), spelled(32), spelled("16-true")
    ('bf16-mixed', '32-true', '16-true')
    """
    spelling = _SPELLINGS.get(str(precision), precision)
    if spelling not in _PRECISIONS:
        raise ValueError(
            f"`precision` must be {', '.join(map(repr, _PRECISIONS[:-1]))} or {_PRECISIONS[-1]!r}, got {precision!r}: "
            "DeepSpeed trains in no other"
        )
    return spelling
