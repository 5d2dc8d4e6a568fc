"""FSDP strategy for Fabric."""

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch

from hpu_core.distributed.process_group import BACKEND, TIMEOUT
from hpu_core.fabric import FabricHPUStrategy
from hpu_fsdp import _checkpoint, _setup, _torch
from hpu_fsdp._lightning import FabricFSDPStrategy
from hpu_fsdp.context_parallel import ContextParallel
from hpu_fsdp.precision import FabricHPUFSDPPrecision, replace_plugin

if TYPE_CHECKING:
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import ClusterEnvironment, Precision
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
    from torch.nn import Module
    from torch.optim import Optimizer

__all__ = ["FabricHPUFSDPStrategy", "HPUFSDPStrategy"]


class FabricHPUFSDPStrategy(FabricHPUStrategy, FabricFSDPStrategy):
    """Fabric strategy for fully sharded data-parallel training on multiple HPUs, registered as "hpu_fsdp".

    Fabric's counterpart of HPUFSDPStrategy. The arguments and attributes that both have mean the same.

    Args:
        accelerator: The accelerator, if it is not passed to Fabric.
        parallel_devices: `torch.device("hpu")` for each device of this machine; set by Fabric.
        cluster_environment: Lightning's cluster environment; detected by Fabric if None.
        precision: A `FabricHPUFSDPPrecision`, or Lightning's FSDPPrecision, which is replaced by one; 32-bit if None.
        state_dict_type: "sharded" by default, as in Lightning.
        context_parallel_size: See HPUFSDPStrategy. Pass each batch through `strategy.context_parallel.shard`.
        async_save: See HPUFSDPStrategy. Call `strategy.finish_save()` at the end.
        **kwargs: Further arguments of torch's FullyShardedDataParallel.

    Raises:
        ImportError: torch or Lightning is older than 2.3.
        TypeError: `timeout` is not a timedelta, or the precision plugin is not one for FSDP.
        ValueError: An argument is invalid; the message names it.
    """

    strategy_name = "hpu_fsdp"
    wrapper_arguments = "_fsdp_kwargs"
    kept_attributes = ("_activation_checkpointing_kwargs",)
    precision_plugin_for = FabricHPUFSDPPrecision
    context_parallel = ContextParallel()
    saves_sharded: bool

    _setting_up = _setup.sharding_setup
    _save = _checkpoint.save_with_fabric
    _load = _checkpoint.load
    # Raises an error: torch writes the files.
    checkpoint_io = FabricFSDPStrategy.checkpoint_io

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments of Lightning's strategy.
        self,
        accelerator: "Accelerator | None" = None,
        parallel_devices: "list[torch.device] | None" = None,
        cluster_environment: "ClusterEnvironment | None" = None,
        precision: "Precision | None" = None,
        process_group_backend: str | None = BACKEND,
        timeout: timedelta | None = TIMEOUT,
        cpu_offload: "bool | CPUOffload | None" = None,
        mixed_precision: "MixedPrecision | None" = None,
        auto_wrap_policy: _setup.Policy | None = None,
        activation_checkpointing: "type[Module] | list[type[Module]] | None" = None,
        activation_checkpointing_policy: _setup.Policy | None = None,
        sharding_strategy: "ShardingStrategy | Literal['FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD', 'HYBRID_SHARD']" = (
            "FULL_SHARD"
        ),
        state_dict_type: Literal["full", "sharded"] = "sharded",
        device_mesh: "tuple[int, int] | DeviceMesh | None" = None,
        *,
        context_parallel_size: int = 1,
        async_save: bool = False,
        failure_detection: bool = True,
        **kwargs: Any,
    ) -> None:
        arguments = _setup.take_arguments(self, locals())
        super().__init__(**arguments, **kwargs)
        self._sharded_modules: list[Module] = []

    @property
    def precision(self) -> FabricHPUFSDPPrecision:
        """Fabric's precision plugin, a FabricHPUFSDPPrecision."""
        if not isinstance(self._precision, FabricHPUFSDPPrecision):
            self._precision = FabricHPUFSDPPrecision()
        return self._precision

    @precision.setter
    def precision(self, plugin: "Precision | None") -> None:
        self._precision = replace_plugin(plugin, FabricHPUFSDPPrecision)

    def setup_module(self, module: "Module") -> "Module":
        """Move a module to the device and shard it.

        Raises:
            ValueError: The module has no parameters.
        """
        with _setup.prepare_units(self, module):
            sharded = super().setup_module(module)
        if self.world_size > 1:
            _torch.reject_double_backward(sharded)
        _setup.share_attention(self, sharded)
        self._sharded_modules.append(sharded)
        return sharded

    def module_sharded_context(self) -> AbstractContextManager[Any]:
        """Return a context in which torch's `wrap` shards modules."""
        return _setup.wrapping(self)

    def backward(self, tensor: "Tensor", module: "Module | None", *args: Any, **kwargs: Any) -> None:
        """Compute gradients and reduce them, without those that the optimizer has cleared since the forward pass."""
        for sharded in self._sharded_modules:
            _torch.drop_stale_gradients(sharded)
        super().backward(tensor, module, *args, **kwargs)

    def clip_gradients_norm(
        self,
        module: "Module",
        optimizer: "Optimizer",
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = True,
    ) -> "Tensor":
        """Clip gradients by their norm over all ranks, and return the norm.

        Raises:
            RuntimeError: The norm is not finite, on all ranks, unless `error_if_nonfinite` is False. Lightning's and
                torch's FSDP ignore the argument; the gradients are not finite then either.
        """
        norm = super().clip_gradients_norm(module, optimizer, max_norm, norm_type, error_if_nonfinite)
        if error_if_nonfinite and not torch.isfinite(norm):
            raise RuntimeError(
                f"the total norm of order {norm_type} of the gradients is non-finite, so they cannot be clipped: skip "
                "this step, or pass `error_if_nonfinite=False`"
            )
        return norm


# The name without the prefix, as Lightning names Fabric's strategies.
HPUFSDPStrategy = FabricHPUFSDPStrategy
