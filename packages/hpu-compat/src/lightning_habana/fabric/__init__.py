"""Import paths of the archived package for Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

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

if TYPE_CHECKING:
    from lightning_habana.fabric.accelerator import HPUAccelerator
    from lightning_habana.fabric.plugins import HPUCheckpointIO, HPUFSDPPrecision, HPUPrecision
    from lightning_habana.fabric.strategies import (
        HPUDDPStrategy,
        HPUFSDPStrategy,
        HPUParallelStrategy,
        SingleHPUStrategy,
    )
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, targets=_targets.FABRIC)
