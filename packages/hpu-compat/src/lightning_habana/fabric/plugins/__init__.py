"""Re-exports of Fabric's plugins."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

__all__ = ["HPUCheckpointIO", "HPUFSDPPrecision", "HPUPrecision"]

if TYPE_CHECKING:
    from hpu_core import HPUCheckpointIO
    from hpu_fsdp import FabricHPUFSDPPrecision as HPUFSDPPrecision
    from hpu_precision import FabricHPUPrecision as HPUPrecision
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, targets=_targets.FABRIC)
