"""Re-export of hpu-deepspeed's precision plugin."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin

    _HPU_DEEPSPEED_AVAILABLE: bool

__all__ = ["HPUDeepSpeedPrecisionPlugin"]

__getattr__, __dir__ = _lazy.lazy_getattr(
    __name__, _targets.TRAINER, __all__, computed={"_HPU_DEEPSPEED_AVAILABLE": lambda: _lazy.is_installed("deepspeed")}
)
