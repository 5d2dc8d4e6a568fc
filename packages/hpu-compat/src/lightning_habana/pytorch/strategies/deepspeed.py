"""DeepSpeed's ZeRO, which is hpu-deepspeed's."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_deepspeed import HPUDeepSpeedStrategy

    _HPU_DEEPSPEED_AVAILABLE: bool

__all__ = ["HPUDeepSpeedStrategy"]

__getattr__, __dir__ = _lazy.fetching(
    __name__, _behind.TRAINER, __all__, found_out={"_HPU_DEEPSPEED_AVAILABLE": lambda: _lazy.is_installed("deepspeed")}
)
