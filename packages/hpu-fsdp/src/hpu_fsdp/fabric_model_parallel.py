"""Strategy for FSDP2 and tensor parallelism for Fabric."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from hpu_core.distributed.process_group import BACKEND, TIMEOUT
from hpu_core.fabric import FabricHPUStrategy
from hpu_fsdp import _checkpoint, _setup
from hpu_fsdp._lightning import FabricFSDPStrategy, FabricModelParallelStrategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["FabricHPUModelParallelStrategy", "HPUModelParallelStrategy"]


class FabricHPUModelParallelStrategy(FabricHPUStrategy, FabricModelParallelStrategy):
    """Fabric strategy for FSDP2 and tensor parallelism on multiple HPUs, which replaces Lightning's on HPU.

    Fabric's counterpart of HPUModelParallelStrategy. The arguments and attributes that both have mean the same.

    Args:
        parallelize_fn: Function that shards a module, called with the module and the device mesh; returns the module.
        async_save: See HPUModelParallelStrategy. Call `strategy.finish_save()` at the end.

    Raises:
        ImportError: torch is older than 2.9, or Lightning older than 2.4.
        TypeError: `timeout` is not a timedelta.
        ValueError: An argument is invalid; the message names it.
    """

    strategy_name = "hpu_model_parallel"
    saves_sharded: bool

    _setting_up = _setup.mesh_setup
    _save = _checkpoint.save_with_fabric
    _load = _checkpoint.load
    # Raises an error: torch writes the files.
    checkpoint_io = FabricFSDPStrategy.checkpoint_io

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments of Lightning's strategy.
        self,
        parallelize_fn: "Callable[[Any, DeviceMesh], Any]",
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
        self._user_parallelize_fn = parallelize_fn
        self._parallelize_fn = self._parallelize

    def _parallelize(self, module: Any, mesh: "DeviceMesh") -> Any:
        sharded = self._user_parallelize_fn(module, mesh)
        # Lightning refuses other results.
        if hasattr(sharded, "modules"):
            _setup.finish_sharding(self, sharded)
        return sharded


# The name without the prefix, as Lightning names Fabric's strategies.
HPUModelParallelStrategy = FabricHPUModelParallelStrategy
