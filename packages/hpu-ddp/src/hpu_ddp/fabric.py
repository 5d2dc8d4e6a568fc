"""Data-parallel strategies for Fabric, with one process per device."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from hpu_core.distributed.process_group import BACKEND, TIMEOUT
from hpu_core.fabric import FabricHPUStrategy
from hpu_ddp import _arguments
from hpu_ddp._launchers import FabricHPUMultiProcessingLauncher, check_trains
from hpu_ddp._lightning import FabricDDPStrategy

if TYPE_CHECKING:
    import torch
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment, Precision


class FabricHPUDDPStrategy(FabricHPUStrategy, FabricDDPStrategy):
    """Fabric strategy for data-parallel training on multiple HPUs, registered as "hpu_ddp".

    Fabric's counterpart of HPUDDPStrategy. In lazy mode, the graph is executed after the backward pass and after
    the optimizer step.

    Args:
        accelerator: The accelerator, if it is not passed to Fabric.
        parallel_devices: `torch.device("hpu")` for each device of this machine; set by Fabric.
        cluster_environment: Lightning's cluster environment; detected by Fabric if None.
        checkpoint_io: Plugin that writes and reads checkpoints; `hpu_core.HPUCheckpointIO` if None.
        precision: Fabric's precision plugin; 32-bit if None.
        process_group_backend: See HPUDDPStrategy.
        timeout: See HPUDDPStrategy.
        start_method: See HPUDDPStrategy.
        failure_detection: See HPUDDPStrategy.
        bucket_cap_mb: See HPUDDPStrategy.
        gradient_as_bucket_view: See HPUDDPStrategy.
        find_unused_parameters: See HPUDDPStrategy.
        **kwargs: Further arguments of torch's DistributedDataParallel.

    Raises:
        TypeError: `timeout` is not a timedelta.
        ValueError: An argument is invalid; the message names it.
    """

    strategy_name = "hpu_ddp"
    wrapper_arguments = "_ddp_kwargs"
    saves_alone = True
    _multiprocessing_launcher = FabricHPUMultiProcessingLauncher

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
        bucket_cap_mb: float = _arguments.BUCKET_CAP_MB,
        gradient_as_bucket_view: bool = True,
        find_unused_parameters: bool = False,
        **kwargs: Any,
    ) -> None:
        _arguments.check(start_method, bucket_cap_mb)
        super().__init__(**self.take_arguments(locals()), **kwargs)

    def prepare_device(self) -> None:
        """Load the Gaudi bridge and select the device of this rank.

        Raises:
            RuntimeError: This process launches the ranks and does not train.
        """
        check_trains(self)
        super().prepare_device()

    def _determine_ddp_device_ids(self) -> None:
        # Each process has one device, without an index.
        return None


class FabricHPUParallelStrategy(FabricHPUDDPStrategy):
    """FabricHPUDDPStrategy under the name that `lightning-habana` had for it as well, registered as "hpu_parallel"."""

    strategy_name = "hpu_parallel"


# Names without the prefix, as Lightning names Fabric's strategies.
HPUParallelStrategy = FabricHPUParallelStrategy
HPUDDPStrategy = FabricHPUDDPStrategy
