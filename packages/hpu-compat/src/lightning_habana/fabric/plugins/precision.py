"""Re-export of hpu-precision's plugin for Fabric."""

from typing import TYPE_CHECKING, Literal

from hpu_compat import _lazy, _targets

__all__ = ["HPUPrecision"]

_PRECISION_INPUT = Literal["32", "bf16", "32-true", "bf16-mixed"]

if TYPE_CHECKING:
    from hpu_precision import FabricHPUPrecision as HPUPrecision
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, targets=_targets.FABRIC)
