"""Re-export of hpu-deepspeed's precision plugin."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUDeepSpeedPrecisionPlugin"]

if TYPE_CHECKING:
    from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin

    _HPU_DEEPSPEED_AVAILABLE: bool
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(
        __name__, __all__, computed={"_HPU_DEEPSPEED_AVAILABLE": lambda: _lazy.is_installed("deepspeed")}
    )
