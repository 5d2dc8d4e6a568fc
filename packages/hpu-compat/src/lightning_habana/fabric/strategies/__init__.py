"""Re-exports of Fabric's strategies."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_core.fabric import FabricSingleHPUStrategy as SingleHPUStrategy
    from hpu_ddp import FabricHPUDDPStrategy as HPUDDPStrategy
    from hpu_ddp import FabricHPUParallelStrategy as HPUParallelStrategy
    from hpu_fsdp import FabricHPUFSDPStrategy as HPUFSDPStrategy

__all__ = [
    "HPUDDPStrategy",
    "HPUFSDPStrategy",
    "HPUParallelStrategy",
    "SingleHPUStrategy",
]

__getattr__, __dir__ = _lazy.lazy_getattr(
    __name__, _targets.FABRIC, __all__, submodules=("ddp", "fsdp", "parallel", "single")
)
