"""Data-parallel strategies for Fabric, with one process per device."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from hpu_core.distributed.process_group import BACKEND, TIMEOUT, ProcessGroupManager
from hpu_core.distributed.strategy import FabricHPUParallelStrategyBase
from hpu_ddp import _defaults
from hpu_ddp._launchers import FabricHPUMultiProcessingLauncher, StartMethodMixin
from hpu_ddp._lightning import FabricDDPStrategy, constructor_arguments

if TYPE_CHECKING:
    import torch
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment, Precision
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel


class FabricHPUParallelStrategy(StartMethodMixin, FabricHPUParallelStrategyBase, FabricDDPStrategy):
    """Fabric strategy for data-parallel training on multiple HPUs, registered as "hpu_parallel".

    Fabric's counterpart of HPUParallelStrategy. In lazy mode, the graph is executed after the backward pass and after
    the optimizer step.

    Args:
        accelerator: The accelerator, if it is not passed to Fabric.
        parallel_devices: `torch.device("hpu")` for each device of this machine; set by Fabric.
        cluster_environment: Lightning's cluster environment; detected by Fabric if None.
        checkpoint_io: Plugin that writes and reads checkpoints; `hpu_core.HPUCheckpointIO` if None.
        precision: Fabric's precision plugin; 32-bit if None.
        process_group_backend: See HPUParallelStrategy.
        timeout: See HPUParallelStrategy.
        start_method: See HPUParallelStrategy.
        failure_detection: See HPUParallelStrategy.
        bucket_cap_mb: See HPUParallelStrategy.
        gradient_as_bucket_view: See HPUParallelStrategy.
        find_unused_parameters: See HPUParallelStrategy.
        **kwargs: Further arguments of torch's DistributedDataParallel.

    Raises:
        TypeError: `timeout` is not a timedelta, or DistributedDataParallel has no argument of this name.
        ValueError: An argument is invalid; the message names it.
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
        bucket_cap_mb: float | None = None,
        gradient_as_bucket_view: bool | None = None,
        find_unused_parameters: bool | None = None,
        **kwargs: Any,
    ) -> None:
        _defaults.validate(start_method, bucket_cap_mb, kwargs)
        given = _defaults.given(
            bucket_cap_mb=bucket_cap_mb,
            gradient_as_bucket_view=gradient_as_bucket_view,
            find_unused_parameters=find_unused_parameters,
        )
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
            **given,
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
        """Wrap a module in DistributedDataParallel, which averages its gradients over all ranks.

        Args:
            module: The module, on the device.
        """
        with self.collective("setup"), _defaults.merged(self):
            wrapper = super().setup_module(module)
        # torch broadcasts them before each forward pass. Without them, ranks may evaluate different numbers of batches.
        if wrapper.will_sync_module_buffers():
            self.count_forward_passes()
        return wrapper

    def _setup_distributed(self) -> None:
        self.create_process_group()

    def _determine_ddp_device_ids(self) -> None:
        # Each process has one device, without an index.
        return None


class FabricHPUDDPStrategy(FabricHPUParallelStrategy):
    """FabricHPUParallelStrategy, registered under its `lightning-habana` name "hpu_ddp"."""

    strategy_name = "hpu_ddp"


# Names without the prefix, as Lightning names Fabric's strategies.
HPUParallelStrategy = FabricHPUParallelStrategy
HPUDDPStrategy = FabricHPUDDPStrategy
