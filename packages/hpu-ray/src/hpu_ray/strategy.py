"""What the strategies for Ray Train have in common, and `prepare_trainer`."""

from typing import TYPE_CHECKING, Any, cast

import torch.distributed as dist

from hpu_core import frameworks, plugins
from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_ray._ray import ray, ray_lightning

if TYPE_CHECKING:
    from lightning.fabric.plugins import ClusterEnvironment
    from lightning.pytorch import Trainer

    class _Strategy:
        """Part of the strategies that is used here."""

        cluster_environment: Any
        process_groups: ProcessGroupManager

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

else:
    _Strategy = object

__all__ = ["WorkerStrategyMixin", "find_strategy", "prepare_trainer"]


class WorkerProcessGroupManager(ProcessGroupManager):
    """Process group of a worker, which Ray creates, and its monitor. Ray restarts the workers that it ends."""

    def rendezvous(self, cluster: "ClusterEnvironment | None") -> None:
        """Check that Ray has created the process group, and start the monitor.

        Raises:
            RankFailedError: A rank has failed; the message names it.
            RuntimeError: Ray has not created it.
        """
        if not dist.is_initialized():
            raise RuntimeError(
                "the strategy needs the process group of Ray Train: train in the function of a "
                "`ray.train.torch.TorchTrainer(..., torch_config=hpu_ray.HPUTorchConfig())`"
            )
        super().rendezvous(cluster)


class WorkerStrategyMixin(_Strategy):
    """Mixin for strategies in a worker of Ray Train; list it before the strategy and Ray's own.

    Ranks come from Ray's context, and the process group is Ray's.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.cluster_environment is None:
            self.cluster_environment = ray_lightning.RayLightningEnvironment()
        manager = self.process_groups
        self.process_groups = WorkerProcessGroupManager(manager.backend, manager.timeout, manager.failure_detection)

    @property
    def num_processes(self) -> int:
        """Number of workers on this machine."""
        return int(ray.train.get_context().get_local_world_size())

    @property
    def num_nodes(self) -> int:
        """Number of machines, if all have as many workers as this one."""
        return int(ray.train.get_context().get_world_size()) // self.num_processes

    @num_nodes.setter
    def num_nodes(self, num_nodes: int) -> None:
        """Ignore the Trainer's number."""

    def setup_hccl_env(self) -> None:
        """Do nothing: HPUTorchConfig has set rank and module, before Ray created the process group."""


def find_strategy(name: str) -> type[Any]:
    """Return the class of a registered strategy, for the Trainer.

    Raises:
        ImportError: Ray uses another Lightning than hpu-core.
        ModuleNotFoundError: The strategy's distribution is not installed.
    """
    framework = frameworks.current()
    if not issubclass(ray_lightning.RayTrainReportCallback, framework.pytorch("callbacks").Callback):
        raise ImportError(  # noqa: TRY004 - no type of a value is wrong.
            f"Ray must use the Lightning of the program, `{framework.name}`, got the other one, which Ray prefers if "
            "both are installed: import `lightning` in the program as well, or uninstall it"
        )
    for plugin in plugins.installed().values():
        if name in plugin.strategies:
            return cast("type[Any]", plugins.load(str(plugin.strategies[name].trainer)))
    raise plugins.missing_strategy_error(name) or ValueError(f"`name` must be a registered strategy, got {name!r}")


def prepare_trainer(trainer: "Trainer") -> "Trainer":
    """Return a Trainer, after a check that it trains in a worker of Ray Train on HPU.

    Raises:
        TypeError: Its strategy is not one of this package.
        RuntimeError: Its cluster environment is not Ray's.
    """
    if not isinstance(trainer.strategy, WorkerStrategyMixin):
        raise TypeError(
            "`strategy` must be a RayHPUDDPStrategy, RayHPUFSDPStrategy or RayHPUDeepSpeedStrategy, got "
            f"{type(trainer.strategy).__name__}: pass `strategy=hpu_ray.RayHPUDDPStrategy()` to the Trainer"
        )
    ray_lightning.prepare_trainer(trainer)
    return trainer
