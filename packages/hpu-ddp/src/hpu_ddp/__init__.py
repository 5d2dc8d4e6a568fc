"""Distributed data-parallel training on Intel Gaudi (HPU) with PyTorch Lightning, on one or more machines.

Importing this package loads neither torch, Lightning nor the Gaudi bridge, starts no process and opens no device: each
public name is imported from its module on first access.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_ddp.__about__ import __version__
    from hpu_ddp.fabric import FabricHPUDDPStrategy, FabricHPUParallelStrategy
    from hpu_ddp.strategy import HPUDDPStrategy, HPUParallelStrategy

__all__ = [
    "FabricHPUDDPStrategy",
    "FabricHPUParallelStrategy",
    "HPUDDPStrategy",
    "HPUParallelStrategy",
    "__version__",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_ddp.__about__": ["__version__"],
        "hpu_ddp.fabric": ["FabricHPUDDPStrategy", "FabricHPUParallelStrategy"],
        "hpu_ddp.strategy": ["HPUDDPStrategy", "HPUParallelStrategy"],
    },
)
