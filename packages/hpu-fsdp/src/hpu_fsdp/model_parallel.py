"""Strategy for FSDP2 and tensor parallelism for the Trainer."""

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from hpu_core import sharded_modules
from hpu_core.distributed.process_group import BACKEND, TIMEOUT
from hpu_core.strategy import HPUStrategy
from hpu_fsdp import _checkpoint, _setup
from hpu_fsdp._lightning import ModelParallelStrategy

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

__all__ = ["HPUModelParallelStrategy"]


class HPUModelParallelStrategy(HPUStrategy, ModelParallelStrategy):
    """Strategy for FSDP2 and tensor parallelism on multiple HPUs, registered as "hpu_model_parallel".

    Extends Lightning's ModelParallelStrategy with HCCL, one device per process, and failure detection. The module
    shards itself in `configure_model`, with `fully_shard` and `parallelize_module` over `self.device_mesh`, whose
    dimensions are "data_parallel" and "tensor_parallel". Gradients are summed and divided, because HCCL has no average.
    It needs eager mode and torch 2.9 or newer.

    Args:
        data_parallel_size: Number of replicas or shards of the data; the number of machines by default.
        tensor_parallel_size: Number of devices that share the tensors of a layer; the devices of a machine by default.
        save_distributed_checkpoint: Whether checkpoints are folders with a file per rank, instead of one file.
        process_group_backend: Backend of the process group, "hccl" or another one that supports HPU tensors; "hccl" if
            None.
        timeout: Timeout of the rendezvous, and of a rank that makes no progress while others wait for it; 30 minutes by
            default.
        async_save: Whether to write sharded checkpoints on another thread, after they are copied to host memory. The
            next save and the end of training wait for it. Default: ``False``.
        failure_detection: Whether ranks watch each other and raise `RankFailedError` on all if one fails, exits
            or hangs; HPU_FAILURE_DETECTION=0 switches it off as well. Default: ``True``.

    Attributes:
        saves_sharded: Whether checkpoints are folders with a file per rank.

    Raises:
        ImportError: torch is older than 2.9, or Lightning older than 2.4.
        TypeError: `timeout` is not a timedelta.
        ValueError: An argument is invalid; the message names it.
    """

    strategy_name = "hpu_model_parallel"
    weights_key = "state_dict"
    shards_parameters = True
    saves_sharded: bool

    _setting_up = _setup.mesh_setup
    _save = _checkpoint.save
    _load = _checkpoint.load

    def __init__(  # noqa: PLR0913 - the arguments of Lightning's strategy.
        self,
        data_parallel_size: Literal["auto"] | int = "auto",
        tensor_parallel_size: Literal["auto"] | int = "auto",
        save_distributed_checkpoint: bool = True,
        process_group_backend: str | None = BACKEND,
        timeout: timedelta | None = TIMEOUT,
        *,
        async_save: bool = False,
        failure_detection: bool = True,
    ) -> None:
        super().__init__(**_setup.take_arguments(self, locals()))

    def setup(self, trainer: "Trainer") -> None:
        """Check the sharded module, materialize it, and set it up for training or evaluation.

        Raises:
            ValueError: `configure_model` has sharded no parameter.
        """
        if self.model is not None:
            _setup.finish_sharding(self, self.model)
            sharded_modules.note(self.model, sharded_modules.Sharding(self.sharding_arguments))
        # Gathered parameters stay, and a later `fit` cannot write to inference tensors; Lightning does so for FSDP.
        for loop in (trainer.validate_loop, trainer.test_loop, trainer.predict_loop):
            loop.inference_mode = False
        super().setup(trainer)
