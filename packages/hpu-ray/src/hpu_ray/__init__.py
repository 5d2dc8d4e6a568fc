"""PyTorch Lightning on Intel Gaudi (HPU) with Ray Train.

Importing this package loads neither torch, Lightning, Ray nor the Gaudi bridge, starts no process and opens no device:
each public name is imported from its module on first access.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_ray.__about__ import __version__
    from hpu_ray.config import HPUTorchConfig, scaling_config, worker_runtime_env
    from hpu_ray.ddp import RayHPUDDPStrategy
    from hpu_ray.deepspeed import RayHPUDeepSpeedStrategy
    from hpu_ray.fsdp import RayHPUFSDPStrategy
    from hpu_ray.strategy import prepare_trainer

__all__ = [
    "HPUTorchConfig",
    "RayHPUDDPStrategy",
    "RayHPUDeepSpeedStrategy",
    "RayHPUFSDPStrategy",
    "__version__",
    "prepare_trainer",
    "scaling_config",
    "worker_runtime_env",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_ray.__about__": ["__version__"],
        "hpu_ray.config": ["HPUTorchConfig", "scaling_config", "worker_runtime_env"],
        "hpu_ray.ddp": ["RayHPUDDPStrategy"],
        "hpu_ray.deepspeed": ["RayHPUDeepSpeedStrategy"],
        "hpu_ray.fsdp": ["RayHPUFSDPStrategy"],
        "hpu_ray.strategy": ["prepare_trainer"],
    },
)
