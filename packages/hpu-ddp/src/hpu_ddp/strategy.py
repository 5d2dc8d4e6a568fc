"""Data-parallel strategies for the Trainer, with one process per device."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from torch.nn.parallel import DistributedDataParallel

from hpu_core.distributed.process_group import BACKEND, TIMEOUT
from hpu_core.strategy import HPUStrategy
from hpu_ddp import _arguments
from hpu_ddp._launchers import HPUMultiProcessingLauncher, check_trains
from hpu_ddp._lightning import DDPStrategy

if TYPE_CHECKING:
    import torch
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.precision import Precision


class HPUDDPStrategy(HPUStrategy, DDPStrategy):
    """Strategy for data-parallel training on multiple HPUs, registered as "hpu_ddp".

    Extends Lightning's DDPStrategy with HCCL, one device per process, failure detection, and the reductions that HCCL
    lacks: averages and exact integers.

    Args:
        accelerator: The accelerator, if it is not passed to the Trainer.
        parallel_devices: `torch.device("hpu")` for each device of this machine; set by the Trainer.
        cluster_environment: Lightning's cluster environment; detected by the Trainer if None.
        checkpoint_io: Plugin that writes and reads checkpoints; `hpu_core.HPUCheckpointIO` if None.
        precision_plugin: Lightning's precision plugin; 32-bit if None.
        ddp_comm_state: State of `ddp_comm_hook`.
        ddp_comm_hook: Communication hook that replaces the all-reduce of each gradient bucket.
        ddp_comm_wrapper: Communication hook wrapper, such as torch's `fp16_compress_wrapper`.
        model_averaging_period: Steps between two averages of the model, for post-local SGD.
        process_group_backend: Backend of the process group, "hccl" or another one that supports HPU tensors; "hccl" if
            None.
        timeout: Timeout of the rendezvous, and of a rank that makes no progress while others wait for it; 30 minutes by
            default.
        start_method: How to launch the ranks: "popen" runs the script again for each further device; "spawn", "fork"
            and "forkserver" use multiprocessing. Notebooks need one of the latter.
        failure_detection: Whether ranks watch each other and raise `RankFailedError` on all if one fails, exits
            or hangs; HPU_FAILURE_DETECTION=0 switches it off as well. Default: ``True``.
        bucket_cap_mb: Size of the gradient buckets in MiB. Each bucket is one all-reduce, which can overlap with the
            backward pass. torch's default is 25.
        gradient_as_bucket_view: Whether gradients are views of the all-reduce buckets, which saves memory and a copy
            per step. torch's default is ``False``. The next backward pass overwrites them, so clone what you keep.
        find_unused_parameters: Whether to traverse the autograd graph in each forward pass for parameters that do not
            receive gradients, which synchronizes with the device.
        **kwargs: Further arguments of torch's DistributedDataParallel, such as `static_graph`.

    Raises:
        TypeError: `timeout` is not a timedelta.
        ValueError: An argument is invalid; the message names it.
    """

    strategy_name = "hpu_ddp"
    _trainable = 0
    wrapper_arguments = "_ddp_kwargs"
    saves_alone = True
    _multiprocessing_launcher = HPUMultiProcessingLauncher

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

    def configure_ddp(self) -> None:
        """Wrap the module, which reduces the gradients of the parameters that are trained now."""
        super().configure_ddp()
        self._trainable = self._num_trainable()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Wrap the module again where a callback such as BackboneFinetuning has unfrozen or frozen parts of it."""
        if (
            batch_idx == 0
            and isinstance(self.model, DistributedDataParallel)
            and self._trainable != self._num_trainable()
        ):
            # torch removes the hooks of the last wrapper with it.
            self.model = self.lightning_module
            self.configure_ddp()
        super().on_train_batch_start(batch, batch_idx)

    def _num_trainable(self) -> int:
        return sum(parameter.requires_grad for parameter in self.lightning_module.parameters())  # type: ignore[union-attr] # there is one in `fit`.

    def determine_ddp_device_ids(self) -> None:
        """Return None: each process has one device, without an index."""

    def _register_ddp_hooks(self) -> None:
        # Lightning registers communication hooks on CUDA only.
        hook = self._ddp_comm_hook
        if hook is None:
            return
        if self._ddp_comm_wrapper is not None:
            hook = self._ddp_comm_wrapper(hook)
        if isinstance(self.model, DistributedDataParallel):
            self.model.register_comm_hook(self._ddp_comm_state, hook)


class HPUParallelStrategy(HPUDDPStrategy):
    """HPUDDPStrategy under the name that `lightning-habana` had for it as well, registered as "hpu_parallel"."""

    strategy_name = "hpu_parallel"
