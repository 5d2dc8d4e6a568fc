"""Strategies of Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_compat._absent import HPUFSDPStrategy
    from hpu_core.fabric import FabricSingleHPUStrategy as SingleHPUStrategy
    from hpu_ddp import FabricHPUDDPStrategy as HPUDDPStrategy
    from hpu_ddp import FabricHPUParallelStrategy as HPUParallelStrategy

__all__ = [
    "HPUDDPStrategy",
    "HPUFSDPStrategy",
    "HPUParallelStrategy",
    "SingleHPUStrategy",
]

__getattr__, __dir__ = _lazy.fetching(
    __name__, _behind.FABRIC, __all__, submodules=("ddp", "fsdp", "parallel", "single")
)
