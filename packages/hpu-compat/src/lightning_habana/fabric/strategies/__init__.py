"""Re-exports of Fabric's strategies."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

__all__ = ["HPUDDPStrategy", "HPUFSDPStrategy", "HPUParallelStrategy", "SingleHPUStrategy"]

if TYPE_CHECKING:
    from hpu_core.fabric import FabricSingleHPUStrategy as SingleHPUStrategy
    from hpu_ddp import FabricHPUDDPStrategy as HPUDDPStrategy
    from hpu_ddp import FabricHPUParallelStrategy as HPUParallelStrategy
    from hpu_fsdp import FabricHPUFSDPStrategy as HPUFSDPStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, targets=_targets.FABRIC)
