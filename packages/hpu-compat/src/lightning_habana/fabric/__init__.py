"""Import paths of the archived package for Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_core import HPUAccelerator, HPUCheckpointIO
    from hpu_core.fabric import FabricSingleHPUStrategy as SingleHPUStrategy
    from hpu_ddp import FabricHPUDDPStrategy as HPUDDPStrategy
    from hpu_ddp import FabricHPUParallelStrategy as HPUParallelStrategy
    from hpu_fsdp import FabricHPUFSDPPrecision as HPUFSDPPrecision
    from hpu_fsdp import FabricHPUFSDPStrategy as HPUFSDPStrategy
    from hpu_precision import FabricHPUPrecision as HPUPrecision

__all__ = [
    "HPUAccelerator",
    "HPUCheckpointIO",
    "HPUDDPStrategy",
    "HPUFSDPPrecision",
    "HPUFSDPStrategy",
    "HPUParallelStrategy",
    "HPUPrecision",
    "SingleHPUStrategy",
]

__getattr__, __dir__ = _lazy.lazy_getattr(
    __name__, _targets.FABRIC, __all__, submodules=("accelerator", "plugins", "strategies")
)
