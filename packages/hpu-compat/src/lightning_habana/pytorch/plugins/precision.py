"""Precision of the Trainer, which is hpu-precision's."""

from typing import TYPE_CHECKING, Literal

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_precision import HPUPrecisionPlugin

__all__ = ["HPUPrecisionPlugin"]

_PRECISION_INPUT = Literal["32", "32-true", "bf16", "bf16-mixed", "fp8", "16-mixed"]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.TRAINER, __all__)
