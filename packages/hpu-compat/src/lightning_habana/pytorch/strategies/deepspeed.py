"""Re-export of hpu-deepspeed's strategy."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUDeepSpeedStrategy"]

if TYPE_CHECKING:
    from hpu_deepspeed import HPUDeepSpeedStrategy

    _HPU_DEEPSPEED_AVAILABLE: bool
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(
        __name__, __all__, computed={"_HPU_DEEPSPEED_AVAILABLE": lambda: _lazy.is_installed("deepspeed")}
    )
