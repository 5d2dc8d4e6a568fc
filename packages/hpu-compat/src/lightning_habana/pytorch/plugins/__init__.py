"""Plugins of the Trainer."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_compat._absent import HPUFSDPPrecision
    from hpu_core import HPUCheckpointIO
    from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin
    from hpu_precision import HPUPrecisionPlugin


__all__ = [
    "HPUCheckpointIO",
    "HPUDeepSpeedPrecisionPlugin",
    "HPUFSDPPrecision",
    "HPUPrecisionPlugin",
]

__getattr__, __dir__ = _lazy.fetching(
    __name__, _behind.TRAINER, __all__, submodules=("deepspeed_precision", "fsdp_precision", "io_plugin", "precision")
)
