"""Fully sharded data-parallel and tensor-parallel training on Intel Gaudi (HPU) with PyTorch Lightning.

Importing this package loads neither torch, Lightning nor the Gaudi bridge, starts no process and opens no device: each
public name is imported from its module on first access.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_fsdp.__about__ import __version__
    from hpu_fsdp._torch import patch_dtensor_random
    from hpu_fsdp.context_parallel import ContextParallel, UlyssesAttention
    from hpu_fsdp.fabric import FabricHPUFSDPStrategy
    from hpu_fsdp.fabric_model_parallel import FabricHPUModelParallelStrategy
    from hpu_fsdp.model_parallel import HPUModelParallelStrategy
    from hpu_fsdp.precision import FabricHPUFSDPPrecision, HPUFSDPPrecision
    from hpu_fsdp.strategy import HPUFSDPStrategy

__all__ = [
    "ContextParallel",
    "FabricHPUFSDPPrecision",
    "FabricHPUFSDPStrategy",
    "FabricHPUModelParallelStrategy",
    "HPUFSDPPrecision",
    "HPUFSDPStrategy",
    "HPUModelParallelStrategy",
    "UlyssesAttention",
    "__version__",
    "patch_dtensor_random",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_fsdp.__about__": ["__version__"],
        "hpu_fsdp._torch": ["patch_dtensor_random"],
        "hpu_fsdp.context_parallel": ["ContextParallel", "UlyssesAttention"],
        "hpu_fsdp.fabric": ["FabricHPUFSDPStrategy"],
        "hpu_fsdp.fabric_model_parallel": ["FabricHPUModelParallelStrategy"],
        "hpu_fsdp.model_parallel": ["HPUModelParallelStrategy"],
        "hpu_fsdp.precision": ["FabricHPUFSDPPrecision", "HPUFSDPPrecision"],
        "hpu_fsdp.strategy": ["HPUFSDPStrategy"],
    },
)
