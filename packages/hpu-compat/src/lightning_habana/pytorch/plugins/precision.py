"""Re-export of hpu-precision's plugin for the Trainer."""

from typing import TYPE_CHECKING, Literal

from hpu_compat import _lazy

__all__ = ["HPUPrecisionPlugin"]

_PRECISION_INPUT = Literal["32", "32-true", "bf16", "bf16-mixed", "fp8", "16-mixed"]

if TYPE_CHECKING:
    from hpu_precision import HPUPrecisionPlugin
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
