"""Re-export of hpu-precision's plugin for Fabric."""

from typing import TYPE_CHECKING, Literal

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_precision import FabricHPUPrecision as HPUPrecision

__all__ = ["HPUPrecision"]

_PRECISION_INPUT = Literal["32", "bf16", "32-true", "bf16-mixed"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.FABRIC, __all__)
