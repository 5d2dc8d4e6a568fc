"""Precision of Fabric, which is hpu-precision's."""

from typing import TYPE_CHECKING, Literal

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_precision import FabricHPUPrecision as HPUPrecision

__all__ = ["HPUPrecision"]

_PRECISION_INPUT = Literal["32", "bf16", "32-true", "bf16-mixed"]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.FABRIC, __all__)
