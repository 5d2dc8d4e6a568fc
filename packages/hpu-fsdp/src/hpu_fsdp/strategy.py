"""FSDP strategy for the Trainer."""

from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from torch.distributed.fsdp import ShardingStrategy

from hpu_core import sharded_modules
from hpu_core.distributed.process_group import BACKEND, TIMEOUT
from hpu_core.strategy import HPUStrategy
from hpu_fsdp import _checkpoint, _setup, _torch
from hpu_fsdp._lightning import FSDPStrategy, rank_zero_info
from hpu_fsdp.context_parallel import ContextParallel
from hpu_fsdp.precision import HPUFSDPPrecision, replace_plugin

if TYPE_CHECKING:
    import torch
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment
    from lightning.pytorch import Trainer
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.precision import Precision
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import CPUOffload, MixedPrecision
    from torch.nn import Module

__all__ = ["HPUFSDPStrategy"]


class HPUFSDPStrategy(HPUStrategy, FSDPStrategy):
    """Strategy for fully sharded data-parallel training on multiple HPUs, registered as "hpu_fsdp".

    Extends Lightning's FSDPStrategy with HCCL, one device per process, failure detection, and gradient clipping by
    norm. It needs eager mode. On a single device, nothing is sharded.

    Args:
        accelerator: The accelerator, if it is not passed to the Trainer.
        parallel_devices: `torch.device("hpu")` for each device of this machine; set by the Trainer.
        cluster_environment: Lightning's cluster environment; detected by the Trainer if None.
        checkpoint_io: Plugin that writes and reads full checkpoints; `hpu_core.HPUCheckpointIO` if None.
        precision_plugin: An `HPUFSDPPrecision`, or Lightning's FSDPPrecision, which is replaced by one; 32-bit if None.
        process_group_backend: Backend of the process group, "hccl" or another one that supports HPU tensors; "hccl" if
            None.
        timeout: Timeout of the rendezvous, and of a rank that makes no progress while others wait for it; 30 minutes by
            default.
        cpu_offload: Whether to keep parameters, gradients and optimizer states in host memory.
        mixed_precision: torch's MixedPrecision, instead of the precision plugin's.
        auto_wrap_policy: Set of module classes to wrap each by itself, or a policy of `torch.distributed.fsdp.wrap`.
        activation_checkpointing: Lightning's earlier `activation_checkpointing_policy`, a class or a list of them.
        activation_checkpointing_policy: The same for modules whose activations are recomputed in the backward pass.
        sharding_strategy: "FULL_SHARD" shards parameters, gradients and optimizer states; "SHARD_GRAD_OP" keeps
            parameters gathered between forward and backward; "HYBRID_SHARD" and "_HYBRID_SHARD_ZERO2" do so within a
            machine and replicate across machines; "NO_SHARD" replicates.
        state_dict_type: "full" saves a checkpoint in one file, "sharded" in a folder with a file per rank.
        device_mesh: Number of replicas, and of ranks that share one, for hybrid sharding; or a mesh of 'hpu' with these
            dimensions. Default: machines, and devices of a machine.
        context_parallel_size: Number of neighbouring ranks that share the sequences of a batch, see
            `ContextParallel.shard`. Default: 1.
        async_save: Whether to write sharded checkpoints on another thread, after they are copied to host memory. The
            next save and the end of training wait for it. Default: ``False``.
        failure_detection: Whether ranks watch each other and raise `RankFailedError` on all if one fails, exits
            or hangs; HPU_FAILURE_DETECTION=0 switches it off as well. Default: ``True``.
        **kwargs: Further arguments of torch's FullyShardedDataParallel, such as `limit_all_gathers`,
            `use_orig_params`, `param_init_fn` and `sync_module_states`.

    Attributes:
        context_parallel_size: Number of neighbouring ranks that share each sequence.
        context_parallel: These ranks, once the ranks have joined.
        saves_sharded: Whether checkpoints are folders with a file per rank.

    Raises:
        ImportError: torch or Lightning is older than 2.3.
        TypeError: `timeout` is not a timedelta, or the precision plugin is not one for FSDP.
        ValueError: An argument is invalid; the message names it.
    """

    strategy_name = "hpu_fsdp"
    weights_key = "model"
    wrapper_arguments = "kwargs"
    kept_attributes = ("_activation_checkpointing_kwargs",)
    shards_parameters = True
    precision_plugin_for = HPUFSDPPrecision
    context_parallel = ContextParallel()
    saves_sharded: bool

    _setting_up = _setup.sharding_setup
    _save = _checkpoint.save
    _load = _checkpoint.load
    # Lightning refuses the names in its own list with another accelerator than CUDA.
    _registered_strategies: list[str] = []  # noqa: RUF012 - as Lightning's.

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments of Lightning's strategy.
        self,
        accelerator: "Accelerator | None" = None,
        parallel_devices: "list[torch.device] | None" = None,
        cluster_environment: "ClusterEnvironment | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision_plugin: "Precision | None" = None,
        process_group_backend: str | None = BACKEND,
        timeout: timedelta | None = TIMEOUT,
        cpu_offload: "bool | CPUOffload | None" = None,
        mixed_precision: "MixedPrecision | None" = None,
        auto_wrap_policy: _setup.Policy | None = None,
        activation_checkpointing: "type[Module] | list[type[Module]] | None" = None,
        activation_checkpointing_policy: _setup.Policy | None = None,
        sharding_strategy: ShardingStrategy | Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"] = (
            "FULL_SHARD"
        ),
        state_dict_type: Literal["full", "sharded"] = "full",
        device_mesh: "tuple[int, int] | DeviceMesh | None" = None,
        *,
        context_parallel_size: int = 1,
        async_save: bool = False,
        failure_detection: bool = True,
        **kwargs: Any,
    ) -> None:
        arguments = _setup.take_arguments(self, locals())
        super().__init__(**arguments, **kwargs)

    @property
    def precision_plugin(self) -> HPUFSDPPrecision:
        """The precision plugin, an HPUFSDPPrecision."""
        if not isinstance(self._precision_plugin, HPUFSDPPrecision):
            self._precision_plugin = HPUFSDPPrecision()
        return self._precision_plugin

    @precision_plugin.setter
    def precision_plugin(self, plugin: "Precision | None") -> None:
        self._precision_plugin = replace_plugin(plugin, HPUFSDPPrecision)

    @property
    def sharding_arguments(self) -> dict[str, Any]:
        """Arguments that a module depends on once this strategy has sharded it."""
        return super().sharding_arguments | {
            "sharding_strategy": self.sharding_strategy.name,
            "cpu_offload": self.cpu_offload,
            "precision": self.mixed_precision_config,
        }

    def setup(self, trainer: "Trainer") -> None:
        """Move the module to the device, shard it, and set it up for training or evaluation."""
        with self._layers_kept():
            super().setup(trainer)
        if self.model is not None:
            _setup.share_attention(self, self.model)
        self.precision_plugin.root_module = self.model

    def teardown(self) -> None:
        """Leave the training; batch norms that `sync_batchnorm` has synchronized stay so in a sharded module."""
        with self._layers_kept():
            super().teardown()

    def model_sharded_context(self) -> AbstractContextManager[Any]:  # type: ignore[override] # Lightning decorates it.
        """Return a context in which torch's `wrap` shards modules, for `configure_model`."""
        return _setup.wrapping(self)

    def pre_backward(self, closure_loss: "Tensor") -> None:
        """Drop gradients that the optimizer has cleared since the forward pass, and prepare manual optimization."""
        super().pre_backward(closure_loss)
        if self.model is not None:
            _torch.watch_loss(self.model, closure_loss)
            _torch.drop_stale_gradients(self.model)

    def batch_to_device(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Move a batch to the device, with context parallelism this rank's part; see `ContextParallel.shard`."""
        return super().batch_to_device(self.context_parallel.shard(batch), *args, **kwargs)

    def _layers_kept(self) -> AbstractContextManager[None]:
        """Return a context in which Lightning replaces no batch norm of a sharded module, which has its parameters."""
        module = self.lightning_module
        is_sharded = module is not None and sharded_modules.find(module) is not None
        return _torch.replaced(self, "_layer_sync", None) if is_sharded else nullcontext()

    def _setup_model(self, model: "Module") -> "Module":
        is_replicated = self.sharding_strategy is ShardingStrategy.NO_SHARD
        if not is_replicated:
            # A summary would call the module beside its wrapper, without which its parameters are parts.
            self.at_teardown.enter_context(_torch.replaced(model, "example_input_array", None))
        kept = sharded_modules.find(model)
        if kept is not None and kept.wrapper is not None:
            return kept.wrapper
        with _setup.prepare_units(self, model):
            wrapped = super()._setup_model(model)
        if self.world_size > 1:
            _torch.reject_double_backward(wrapped)
        wrapper = None if wrapped is model else wrapped
        sharded_modules.note(model, sharded_modules.Sharding(self.sharding_arguments, wrapper, is_replicated))
        if not is_replicated:
            part = sum(parameter.numel() for parameter in wrapped.parameters())
            rank_zero_info(f"FSDP: rank 0 keeps {part:,} parameters; a model summary counts those, not the model's")
        return wrapped
