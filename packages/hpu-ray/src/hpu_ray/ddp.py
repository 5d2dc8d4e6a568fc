"""Data-parallel strategy for workers of Ray Train."""

from typing import TYPE_CHECKING

from hpu_ray._ray import ray_lightning
from hpu_ray.strategy import WorkerStrategyMixin, find_strategy

if TYPE_CHECKING:
    from hpu_core.strategy import HPUStrategy as _Base
else:
    _Base = find_strategy("hpu_ddp")

__all__ = ["RayHPUDDPStrategy"]


class RayHPUDDPStrategy(WorkerStrategyMixin, _Base, ray_lightning.RayDDPStrategy):  # type: ignore[misc] # Ray has no type information.
    """HPUDDPStrategy of hpu-ddp in a worker of Ray Train, with the same arguments.

    Raises:
        ModuleNotFoundError: On import, hpu-ddp is not installed.
    """
