"""Training on many Gaudi cards with the Trainer: one process per card, gradients averaged over all of them."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from torch.nn.parallel import DistributedDataParallel

from hpu_core import hccl
from hpu_core.distributed.process_group import BACKEND, TIMEOUT, ProcessGroupManager
from hpu_core.distributed.strategy import HPUParallelStrategyBase
from hpu_ddp import _defaults
from hpu_ddp._launchers import HPUDDPLauncherMixin, HPUMultiProcessingLauncher
from hpu_ddp._lightning import DDPStrategy, constructor_arguments, reset_seed

if TYPE_CHECKING:
    import torch
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.precision import Precision


class HPUParallelStrategy(HPUDDPLauncherMixin, HPUParallelStrategyBase, DDPStrategy):
    """Trains on many Gaudi cards with data parallelism; its name in Lightning is "hpu_parallel".

    Each card has a process, and all processes have the same weights at every step, because they average their
    gradients. Lightning's DDPStrategy does the work; this class adds what a card needs: HCCL, one card per process and
    none in a process that only starts others, averages that HCCL does not have, exact integers, and an end for all
    ranks when one of them has failed.

    Args:
        accelerator: The accelerator, when it is not passed to the Trainer.
        parallel_devices: One `torch.device("hpu")` per card of this machine; the Trainer's `devices` when not given.
        cluster_environment: How the processes are started; Lightning finds out when it is not given.
        checkpoint_io: How checkpoints are written and read; `hpu_core.HPUCheckpointIO` when not given.
        precision_plugin: Lightning's precision plugin; 32 bit when not given.
        ddp_comm_state: State of `ddp_comm_hook`.
        ddp_comm_hook: What DDP does instead of averaging a bucket of gradients.
        ddp_comm_wrapper: Wraps `ddp_comm_hook`.
        model_averaging_period: After how many steps post-local SGD averages the models.
        process_group_backend: "hccl", or another backend that works on HPUs.
        timeout: For how long ranks wait for each other. After this time, and usually much sooner, a training that has
            lost a rank has ended on all others, with an error that names it.
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
    multi_processing_launcher = HPUMultiProcessingLauncher

    def __init__(  # noqa: PLR0913, PLR0917 - Lightning's arguments and three of torch's, whose defaults differ here.
        self,
        accelerator: "Accelerator | None" = None,
        parallel_devices: "list[torch.device] | None" = None,
        cluster_environment: "ClusterEnvironment | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision_plugin: "Precision | None" = None,
        ddp_comm_state: object | None = None,
        ddp_comm_hook: Callable[..., Any] | None = None,
        ddp_comm_wrapper: Callable[..., Any] | None = None,
        model_averaging_period: int | None = None,
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
            precision_plugin=precision_plugin,
            ddp_comm_state=ddp_comm_state,
            ddp_comm_hook=ddp_comm_hook,
            ddp_comm_wrapper=ddp_comm_wrapper,
            model_averaging_period=model_averaging_period,
            process_group_backend=self.process_groups.backend,
            timeout=self.process_groups.timeout,
            start_method=start_method,
            bucket_cap_mb=bucket_cap_mb,
            gradient_as_bucket_view=gradient_as_bucket_view,
            find_unused_parameters=find_unused_parameters,
            **kwargs,
        )

    @classmethod
    def from_lightning(cls, strategy: DDPStrategy) -> "HPUParallelStrategy":
        """Return a strategy with the arguments of one of Lightning's, which replaces it on HPU.

        Args:
            strategy: Lightning's DDPStrategy, not set up yet.

        Raises:
            ValueError: It has a process group backend that does not take hpu tensors.
        """
        return cls(**constructor_arguments(strategy))

    def setup_distributed(self) -> None:
        """Set this process's rank and create the process group."""
        reset_seed()
        self.set_world_ranks()
        self.setup_hccl_env()
        self.process_groups.init_process_group(self.cluster_environment)

    def setup_hccl_env(self) -> None:
        """Set this process's rank and module for the bridge, before its device is opened; subclasses may extend it."""
        hccl.initialize_hccl(self.world_size, self.global_rank, self.local_rank)

    def determine_ddp_device_ids(self) -> None:
        """Return None: a process has one card, and it has no index."""

    def _register_ddp_hooks(self) -> None:
        # Lightning registers them for CUDA only.
        hook = self._ddp_comm_hook
        if hook is None:
            return
        if self._ddp_comm_wrapper is not None:
            hook = self._ddp_comm_wrapper(hook)
        if isinstance(self.model, DistributedDataParallel):
            self.model.register_comm_hook(self._ddp_comm_state, hook)


class HPUDDPStrategy(HPUParallelStrategy):
    """HPUParallelStrategy under the name "hpu_ddp", which `lightning-habana` had for it."""

    strategy_name = "hpu_ddp"
