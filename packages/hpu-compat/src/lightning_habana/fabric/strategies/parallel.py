"""Re-export of hpu-ddp's strategy "hpu_parallel" for Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

__all__ = ["HPUParallelStrategy"]

if TYPE_CHECKING:
    from hpu_ddp import FabricHPUParallelStrategy as HPUParallelStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, targets=_targets.FABRIC)
