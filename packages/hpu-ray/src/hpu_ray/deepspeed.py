"""DeepSpeed strategy for workers of Ray Train."""

from typing import TYPE_CHECKING

from hpu_ray._ray import ray_lightning
from hpu_ray.strategy import WorkerStrategyMixin, find_strategy

if TYPE_CHECKING:
    from hpu_core.strategy import HPUStrategy as _Base
else:
    _Base = find_strategy("hpu_deepspeed")

__all__ = ["RayHPUDeepSpeedStrategy"]


class RayHPUDeepSpeedStrategy(WorkerStrategyMixin, _Base, ray_lightning.RayDeepSpeedStrategy):  # type: ignore[misc] # Ray has no type information.
    """HPUDeepSpeedStrategy of hpu-deepspeed in a worker of Ray Train, with the same arguments.

    Raises:
        ModuleNotFoundError: On import, hpu-deepspeed is not installed.
    """
