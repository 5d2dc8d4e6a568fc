"""Re-exports of the Trainer's plugins."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUCheckpointIO", "HPUDeepSpeedPrecisionPlugin", "HPUFSDPPrecision", "HPUPrecisionPlugin"]

if TYPE_CHECKING:
    from hpu_core import HPUCheckpointIO
    from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin
    from hpu_fsdp import HPUFSDPPrecision
    from hpu_precision import HPUPrecisionPlugin
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
