"""Training on many Gaudi cards with Fabric: one process per card, gradients averaged over all of them."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from hpu_core import hccl
from hpu_core.distributed.process_group import BACKEND, TIMEOUT, ProcessGroupManager
from hpu_core.distributed.strategy import FabricHPUParallelStrategyBase
from hpu_ddp import _defaults
from hpu_ddp._launchers import FabricHPUMultiProcessingLauncher, HPUDDPLauncherMixin
from hpu_ddp._lightning import FabricDDPStrategy, constructor_arguments

if TYPE_CHECKING:
    import torch
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment, Precision
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel


class FabricHPUParallelStrategy(HPUDDPLauncherMixin, FabricHPUParallelStrategyBase, FabricDDPStrategy):
    """Fabric's twin of HPUParallelStrategy; its name in Lightning is "hpu_parallel".

    In lazy mode, the graph is closed after backward and after the optimizer's step, as with the Trainer.

    Args:
        accelerator: The accelerator, when it is not passed to Fabric.
        parallel_devices: One `torch.device("hpu")` per card of this machine; Fabric's `devices` when not given.
        cluster_environment: How the processes are started; Lightning finds out when it is not given.
        checkpoint_io: How checkpoints are written and read; `hpu_core.HPUCheckpointIO` when not given.
        precision: Fabric's precision plugin; 32 bit when not given.
        process_group_backend: "hccl", or another backend that works on HPUs.
        timeout: For how long ranks wait for each other, see HPUParallelStrategy.
        start_method: "popen" starts the script once more per card, the others start processes with multiprocessing:
            "spawn" is the one for notebooks.
        bucket_cap_mb: Size of a bucket of gradients, in MiB; 230 is what Intel's examples use.
        gradient_as_bucket_view: Whether gradients lie in the buckets, which spares a copy of all of them.
        find_unused_parameters: Whether to look, in each step, for parameters that the loss does not depend on.
        **kwargs: For torch's DistributedDataParallel.

    Raises:
        TypeError: `timeout` is no timedelta.
        ValueError: An argument cannot be honoured; the text names it.
    """

    strategy_name = "hpu_parallel"
    multi_processing_launcher = FabricHPUMultiProcessingLauncher

    def __init__(  # noqa: PLR0913, PLR0917 - Lightning's arguments and three of torch's, whose defaults differ here.
        self,
        accelerator: "Accelerator | None" = None,
        parallel_devices: "list[torch.device] | None" = None,
        cluster_environment: "ClusterEnvironment | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision: "Precision | None" = None,
        process_group_backend: str | None = BACKEND,
        timeout: timedelta | None = TIMEOUT,
        start_method: Literal["popen", "spawn", "fork", "forkserver"] = "popen",
        *,
        failure_detection: bool = True,
        bucket_cap_mb: float = _defaults.BUCKET_CAP_MB,
        gradient_as_bucket_view: bool = _defaults.GRADIENT_AS_BUCKET_VIEW,
        find_unused_parameters: bool = _defaults.FIND_UNUSED_PARAMETERS,
        **kwargs: Any,
    ) -> None:
        self.process_groups = ProcessGroupManager(process_group_backend, timeout, failure_detection)
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=cluster_environment,
            checkpoint_io=checkpoint_io,
            precision=precision,
            process_group_backend=self.process_groups.backend,
            timeout=self.process_groups.timeout,
            start_method=start_method,
            bucket_cap_mb=bucket_cap_mb,
            gradient_as_bucket_view=gradient_as_bucket_view,
            find_unused_parameters=find_unused_parameters,
            **kwargs,
        )

    @classmethod
    def from_lightning(cls, strategy: FabricDDPStrategy) -> "FabricHPUParallelStrategy":
        """Return a strategy with the arguments of one of Lightning's, which replaces it on HPU.

        Args:
            strategy: Lightning's DDPStrategy, not set up yet.

        Raises:
            ValueError: It has a process group backend that does not take hpu tensors.
        """
        return cls(**constructor_arguments(strategy))

    def setup_module(self, module: "Module") -> "DistributedDataParallel":
        """Have a module's gradients averaged over all ranks.

        Args:
            module: The module, on the card.
        """
        with self.collective("setup"):
            return super().setup_module(module)

    def setup_hccl_env(self) -> None:
        """Set this process's rank and module for the bridge, before its device is opened; subclasses may extend it."""
        hccl.initialize_hccl(self.world_size, self.global_rank, self.local_rank)

    def _setup_distributed(self) -> None:
        self._set_world_ranks()
        self.setup_hccl_env()
        self.process_groups.init_process_group(self.cluster_environment)

    def _determine_ddp_device_ids(self) -> None:
        # A process has one card, and it has no index.
        return None


class FabricHPUDDPStrategy(FabricHPUParallelStrategy):
    """FabricHPUParallelStrategy under the name "hpu_ddp", which `lightning-habana` had for it."""

    strategy_name = "hpu_ddp"


# Lightning has one class name in two namespaces.
HPUParallelStrategy = FabricHPUParallelStrategy
HPUDDPStrategy = FabricHPUDDPStrategy
