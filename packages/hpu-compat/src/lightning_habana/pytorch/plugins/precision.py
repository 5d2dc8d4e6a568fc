"""Re-export of hpu-precision's plugin for the Trainer."""

from typing import TYPE_CHECKING, Literal

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_precision import HPUPrecisionPlugin

__all__ = ["HPUPrecisionPlugin"]

_PRECISION_INPUT = Literal["32", "32-true", "bf16", "bf16-mixed", "fp8", "16-mixed"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.TRAINER, __all__)
