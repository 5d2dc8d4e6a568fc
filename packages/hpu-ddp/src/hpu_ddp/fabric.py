"""Training on many Gaudi cards with Fabric: one process per card, gradients averaged over all of them."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from hpu_core.parallel import FabricHPUParallelStrategyBase
from hpu_ddp import _options
from hpu_ddp._launchers import FabricHPUMultiProcessingLauncher
from hpu_ddp._lightning import FabricDDPStrategy
from hpu_ddp._ranks import Ranks
from hpu_ddp._watched import Watched

if TYPE_CHECKING:
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment, Precision
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel


class FabricHPUParallelStrategy(Watched, FabricHPUParallelStrategyBase, FabricDDPStrategy):
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
        process_group_backend: str | None = _options.BACKEND,
        timeout: timedelta | None = _options.TIMEOUT,
        start_method: Literal["popen", "spawn", "fork", "forkserver"] = "popen",
        *,
        bucket_cap_mb: float = _options.BUCKET_CAP_MB,
        gradient_as_bucket_view: bool = _options.GRADIENT_AS_BUCKET_VIEW,
        find_unused_parameters: bool = _options.FIND_UNUSED_PARAMETERS,
        **kwargs: Any,
    ) -> None:
        self._ranks = Ranks(process_group_backend, timeout)
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=cluster_environment,
            checkpoint_io=checkpoint_io,
            precision=precision,
            process_group_backend=self._ranks.backend,
            timeout=self._ranks.timeout,
            start_method=start_method,
            bucket_cap_mb=bucket_cap_mb,
            gradient_as_bucket_view=gradient_as_bucket_view,
            find_unused_parameters=find_unused_parameters,
            **kwargs,
        )

    def setup_environment(self) -> None:
        """Meet the other ranks, open this rank's card and make the process group.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator.
            ModuleNotFoundError: The Gaudi bridge is not installed.
            RankFailedError: A rank has not come, or has failed; the text names it.
            RuntimeError: No card could be opened.
            ValueError: The environment is incomplete or contradicts itself.
        """
        self.check_accelerator()
        self._set_world_ranks()
        self._ranks.meet(self.cluster_environment)
        super().setup_environment()

    def setup_module(self, module: "Module") -> "DistributedDataParallel":
        """Have a module's gradients averaged over all ranks.

        Args:
            module: The module, on the card.
        """
        with self.meeting("set-up"):
            return super().setup_module(module)

    def backward(self, tensor: Tensor, module: "Module | None", *args: Any, **kwargs: Any) -> None:
        """Compute gradients, average them over all ranks, and close the graph of forward and backward (lazy mode).

        Args:
            tensor: The loss, scalar.
            module: The module, for the precision plugin.
            *args: For the precision plugin.
            **kwargs: For the precision plugin.
        """
        with self.meeting("backward"):
            super().backward(tensor, module, *args, **kwargs)

    def _set_world_ranks(self) -> None:
        self._ranks.find_place(self.cluster_environment, self.num_processes, self.num_nodes)
        super()._set_world_ranks()

    def _setup_distributed(self) -> None:
        self._set_world_ranks()
        self._ranks.make_process_group(self.cluster_environment)

    def _determine_ddp_device_ids(self) -> None:
        # A process has one card, and it has no index.
        return None


class FabricHPUDDPStrategy(FabricHPUParallelStrategy):
    """The same under the name "hpu_ddp", which `lightning-habana` had for it.

    Args:
        *args: As FabricHPUParallelStrategy's.
        **kwargs: As FabricHPUParallelStrategy's.
    """

    strategy_name = "hpu_ddp"
