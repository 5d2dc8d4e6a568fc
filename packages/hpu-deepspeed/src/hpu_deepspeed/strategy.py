"""The Trainer's DeepSpeed strategy for HPUs."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_core import sharded_modules
from hpu_core.distributed.process_group import TIMEOUT
from hpu_core.strategy import HPUStrategy, set_module_device
from hpu_deepspeed import _config, _deepspeed, _inference, _lightning_2_3, _nvme_checkpoint, _setup
from hpu_deepspeed._lightning import (
    DeepSpeedPrecision,
    DeepSpeedStrategy,
    MisconfigurationException,
    MockOptimizer,
    rank_zero_warn,
)
from hpu_deepspeed.precision import HPUDeepSpeedPrecisionPlugin

if TYPE_CHECKING:
    from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
    from lightning.fabric.utilities.types import _PATH
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.precision import Precision
    from torch.nn import Module
    from torch.optim import Optimizer

__all__ = ["HPUDeepSpeedStrategy"]

_ENGINE_DTYPES: Final = {"32": torch.float32, "bf16": torch.bfloat16, "16": torch.float16, "fp8": torch.bfloat16}


class HPUDeepSpeedStrategy(HPUStrategy, DeepSpeedStrategy):
    """DeepSpeed ZeRO strategy for HPUs, registered as "hpu_deepspeed", "hpu_deepspeed_stage_1" and so on.

    Extends Lightning's DeepSpeedStrategy with DeepSpeed for Gaudi, HCCL and one device per process. It also differs in
    these points:

    - Gradients are scaled for accumulation once. The last batches of an epoch are an optimizer step even if they are
      fewer than `accumulate_grad_batches`, as with other strategies.
    - The module's optimizer and scheduler take precedence over those in the configuration, with a warning.
    - Checkpoints are written atomically.
    - `dtype`, `tensor_parallel` and the other options of `deepspeed.init_inference`, as arguments or in `config`, make
      `validate`, `test` and `predict` use DeepSpeed's inference engine instead of the engine that trains.

    Args:
        accelerator: The accelerator, if it is not passed to the Trainer.
        zero_optimization: Whether to use ZeRO.
        stage: ZeRO stage. 0 partitions nothing, 1 optimizer states, 2 gradients as well, 3 parameters as well.
        remote_device: Device on which stage 3 creates parameters, "cpu" or "nvme"; the HPU if None.
        offload_optimizer: Whether to offload optimizer states and the optimizer step to `offload_optimizer_device`.
        offload_parameters: Whether to offload parameters to `offload_params_device` in stage 3.
        offload_params_device: "cpu" or "nvme".
        nvme_path: Directory on a local disk for offloading to NVMe.
        params_buffer_count: Number of pinned buffers for parameters, for NVMe.
        params_buffer_size: Elements per buffer for parameters, for NVMe.
        max_in_cpu: Maximum number of parameter elements to keep in host memory, for NVMe.
        offload_optimizer_device: "cpu" or "nvme".
        optimizer_buffer_count: Number of pinned buffers for optimizer states, for NVMe; at least the number of states
            per parameter, 4 for Adam (parameter, gradient, momentum and variance).
        block_size: Bytes per read or write, for NVMe.
        queue_depth: Number of concurrent reads or writes, for NVMe.
        single_submit: Whether to submit requests one by one, for DeepSpeed's own NVMe operator.
        overlap_events: Whether to overlap requests, for DeepSpeed's own NVMe operator.
        thread_count: Number of threads per request, for DeepSpeed's own NVMe operator.
        pin_memory: Whether to pin host memory for offloading.
        sub_group_size: Elements per parameter group that is updated at a time in stage 3.
        contiguous_gradients: Whether to copy gradients to a contiguous buffer as they are computed.
        overlap_comm: Whether to overlap gradient reduction with the backward pass.
        allgather_partitions: Whether to all-gather updated parameters after a step instead of broadcasting them.
        reduce_scatter: Whether to reduce-scatter gradients instead of all-reducing them.
        allgather_bucket_size: Elements per all-gather.
        reduce_bucket_size: Elements per gradient reduction.
        zero_allow_untested_optimizer: Whether ZeRO accepts optimizers that DeepSpeed has not tested.
        logging_batch_size_per_gpu: Batch size per device, for DeepSpeed's throughput log; "auto" takes that of
            the train dataloader.
        config: DeepSpeed's configuration or the path of a JSON file. Arguments that are part of the configuration are
            ignored if it is given.
        logging_level: Level of DeepSpeed's logger.
        parallel_devices: `torch.device("hpu")` for each device; set by the Trainer.
        cluster_environment: Lightning's cluster environment; detected by the Trainer if None.
        loss_scale: Static loss scale for float16; 0 for a dynamic one.
        initial_scale_power: Exponent of the initial dynamic loss scale, a power of 2.
        loss_scale_window: Steps without overflow before the dynamic loss scale is doubled.
        hysteresis: Overflows before the dynamic loss scale is halved.
        min_loss_scale: Minimum dynamic loss scale.
        partition_activations: Whether to partition activations with `deepspeed.checkpointing.checkpoint`.
        cpu_checkpointing: Whether to offload partitioned activations to the host.
        contiguous_memory_optimization: Whether to copy partitioned activations to contiguous memory.
        synchronize_checkpoint_boundary: Whether to synchronize the device at each activation checkpoint.
        load_full_weights: Whether to load checkpoints that are a single file, in stage 3.
        precision_plugin: Precision plugin; chosen by the Trainer's `precision` if None.
        process_group_backend: "hccl".
        timeout: How long ranks wait for each other; 30 minutes if None.
        exclude_frozen_parameters: Whether to leave frozen parameters out of checkpoints. Needs Lightning 2.5.5.
        failure_detection: Whether ranks watch each other; HPU_FAILURE_DETECTION=0 switches it off as well.
        dtype: Data type of the weights in the inference engine; that of the Trainer's `precision` if None.
        tensor_parallel: Options for tensor parallelism in the inference engine, such as `{"tp_size": 2}`.
        replace_with_kernel_inject: Whether the inference engine replaces modules by DeepSpeed's own kernels.
        enable_cuda_graph: Ignored by the inference engine on HPU; for configurations that were written for CUDA.
        async_save: Whether to write checkpoints on another thread, after they are copied to host memory. The next save
            and the end of training wait for it.
        **kwargs: Further options of `deepspeed.init_inference`, such as `replace_method`.

    Raises:
        ImportError: DeepSpeed is too old.
        ModuleNotFoundError: DeepSpeed or the Gaudi bridge is not installed.
        RuntimeError: DeepSpeed was imported for another accelerator.
        TypeError: An argument is of the wrong type, or unknown.
        ValueError: An option of the inference engine has an invalid value.
    """

    # hpu-doctor verify: barrier-never-times-out

    strategy_name = "hpu_deepspeed"
    precision_plugin_for = HPUDeepSpeedPrecisionPlugin
    bridge_variables = _deepspeed.BRIDGE_ENV
    config: Any
    _save = _setup.save

    def __init__(  # noqa: PLR0913, PLR0917 - the signature of Lightning's strategy.
        self,
        accelerator: "Accelerator | None" = None,
        zero_optimization: bool = True,
        stage: int = 2,
        remote_device: str | None = None,
        offload_optimizer: bool = False,
        offload_parameters: bool = False,
        offload_params_device: str = "cpu",
        nvme_path: str = "/local_nvme",
        params_buffer_count: int = 5,
        params_buffer_size: int = 100_000_000,
        max_in_cpu: int = 1_000_000_000,
        offload_optimizer_device: str = "cpu",
        optimizer_buffer_count: int = 4,
        block_size: int = 1_048_576,
        queue_depth: int = 8,
        single_submit: bool = False,
        overlap_events: bool = True,
        thread_count: int = 1,
        pin_memory: bool = False,
        sub_group_size: int = 1_000_000_000_000,
        contiguous_gradients: bool = True,
        overlap_comm: bool = True,
        allgather_partitions: bool = True,
        reduce_scatter: bool = True,
        allgather_bucket_size: int = 200_000_000,
        reduce_bucket_size: int = 200_000_000,
        zero_allow_untested_optimizer: bool = True,
        logging_batch_size_per_gpu: str | int = "auto",
        config: str | os.PathLike[str] | dict[str, Any] | None = None,
        logging_level: int = logging.WARNING,
        parallel_devices: list[torch.device] | None = None,
        cluster_environment: "ClusterEnvironment | None" = None,
        loss_scale: float = 0,
        initial_scale_power: int = 16,
        loss_scale_window: int = 1000,
        hysteresis: int = 2,
        min_loss_scale: int = 1,
        partition_activations: bool = False,
        cpu_checkpointing: bool = False,
        contiguous_memory_optimization: bool = False,
        synchronize_checkpoint_boundary: bool = False,
        load_full_weights: bool = False,
        precision_plugin: "Precision | None" = None,
        process_group_backend: str | None = None,
        timeout: timedelta | None = TIMEOUT,
        exclude_frozen_parameters: bool = False,
        failure_detection: bool = True,
        dtype: torch.dtype | None = None,
        tensor_parallel: dict[str, Any] | None = None,
        replace_with_kernel_inject: bool | None = None,
        enable_cuda_graph: bool | None = None,
        async_save: bool = False,
        **kwargs: Any,
    ) -> None:
        arguments = dict(locals())
        inference = {**{name: arguments.pop(name) for name in _inference.OPTIONS}, **arguments.pop("kwargs")}
        super().__init__(**_setup.take_arguments(self, arguments, DeepSpeedStrategy))
        self._inference_options = _inference.take_options(self.config, inference)
        _setup.finish(self)

    def _set_up_by_lightning(self) -> None:
        # Not by its own method, which requires CUDA.
        super(DeepSpeedStrategy, self).setup_environment()

    def setup_distributed(self) -> None:
        """Prepare offloading to NVMe, and pass the process group to DeepSpeed."""
        _setup.set_up_distributed(self)
        # From Lightning 2.2 on, `setup` does this.
        if not hasattr(self, "_init_config_if_needed") and not self._config_initialized:
            self._format_config()
            self._config_initialized = True

    def init_deepspeed(self) -> None:
        """Initialize DeepSpeed's engine."""
        if not _lightning_2_3.init_deepspeed(self):
            super().init_deepspeed()

    @property
    def shards_parameters(self) -> bool:
        """Whether each card holds a part of the parameters, as in stage 3."""
        return bool(self.zero_stage_3)

    @property
    def sharding_arguments(self) -> dict[str, Any]:
        """Arguments that a module depends on once stage 3 has sharded it."""
        return {**super().sharding_arguments, "stage": self.config.get("zero_optimization", {}).get("stage", 0)}

    @property
    def handles_gradient_accumulation(self) -> bool:
        """Whether DeepSpeed decides after which batches to step; it does not, Lightning does."""
        return False

    def setup_environment(self) -> None:
        """Wait for the other ranks, open this rank's device and create the process group.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator, or the precision plugin is not
                DeepSpeed's.
            RankFailedError: A rank did not join, or has failed; the message names it.
            NotImplementedError: This DeepSpeed cannot offload to NVMe on Gaudi.
            OSError: `nvme_path` does not exist or is not writable.
            RuntimeError: No device can be opened.
        """
        if not isinstance(self.precision_plugin, DeepSpeedPrecision):
            raise MisconfigurationException(
                f"{type(self).__name__} needs a precision plugin for DeepSpeed, got "
                f"{type(self.precision_plugin).__name__}: pass `precision=` to the Trainer, or "
                "`plugins=HPUDeepSpeedPrecisionPlugin(...)`"
            )
        super().setup_environment()

    def backward(
        self, closure_loss: torch.Tensor, optimizer: "Optimizer | None", *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """Run the backward pass of DeepSpeed's engine, which reduces gradients over all ranks; return the loss.

        The loss is a scalar, already divided by `accumulate_grad_batches`.
        """
        module = self.lightning_module
        if module is not None and module.automatic_optimization:
            # Lightning restarts its count of accumulated batches in each epoch, DeepSpeed does not.
            accumulates = module.trainer.fit_loop._should_accumulate()  # noqa: SLF001 - the same on Lightning 2.0 to 2.6.
            self.deepspeed_engine.set_gradient_accumulation_boundary(not accumulates)
        # By default the engine divides the loss by the accumulation steps as well.
        loss: torch.Tensor = super().backward(closure_loss, optimizer, *args, scale_wrt_gas=False, **kwargs)
        return loss

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Do nothing: `backward` sets the accumulation boundary, and the engine's `no_sync` lacks stages 2 and 3."""
        yield

    def _load(
        self, load_checkpoint: Any, path: "_PATH", state: Any | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Load this rank's shard of a checkpoint directory, or a file with `load_full_weights`; return its state."""
        checkpoint = self.locate_checkpoint(path)
        if _inference.is_engine(self.model):
            return self._load_for_inference(checkpoint, options)
        _deepspeed.patch_weight_loading(self.model)
        return super()._load(load_checkpoint, checkpoint, state, options)

    def teardown(self) -> None:
        """Release the engine's parameters and the device."""
        # In stage 3, weights may still be gathered on the device. Lightning moves them to the host without telling
        # DeepSpeed, so without this call the module cannot be tested after `fit`. Only an engine has the method.
        getattr(self.model, "empty_partition_cache", lambda: None)()
        _deepspeed.remove_hooks(self.model)
        _deepspeed.restore_linear()
        super().teardown()
        if self.zero_stage_3 and self.lightning_module is not None:
            _deepspeed.move_placeholders(self.lightning_module)
            sharded_modules.note(self.lightning_module, sharded_modules.Sharding(self.sharding_arguments))

    def _format_config(self) -> None:
        _setup.prepare_config(self, self.precision_plugin.precision)
        super()._format_config()

    def _auto_select_batch_size(self) -> int:
        # For DeepSpeed's throughput log. Lightning's method needs a batch sampler with a batch size.
        source = self.lightning_module.trainer.fit_loop._data_source if self.lightning_module else None  # noqa: SLF001 - as Lightning's.
        loader = source.dataloader() if source is not None and source.is_defined() else None
        return getattr(getattr(loader, "batch_sampler", None), "batch_size", None) or 1

    def _initialize_deepspeed_train(self, model: "Module") -> None:
        # Lightning would not call `configure_optimizers` if the configuration has an optimizer.
        optimizer, scheduler = configured = self._init_optimizers()
        if isinstance(optimizer, MockOptimizer):
            if "optimizer" not in self.config:
                raise MisconfigurationException(
                    "`configure_optimizers` returned no optimizer and the DeepSpeed config has none: add one to either"
                )
            super()._initialize_deepspeed_train(model)
            return
        self._remove_from_config("optimizer")
        if scheduler is not None:
            self._remove_from_config("scheduler")
        self._init_optimizers = lambda: configured  # type: ignore[method-assign] # For the call below only.
        try:
            super()._initialize_deepspeed_train(model)
        finally:
            del self._init_optimizers

    def _remove_from_config(self, name: str) -> None:
        """Remove an optimizer or scheduler that the module overrides."""
        if self.config.pop(name, None) is not None:
            rank_zero_warn(
                f"both `configure_optimizers` and the DeepSpeed config define the {name}: the one in the config is "
                "ignored"
            )
            _config.fill_defaults(self.config)

    def _setup_model_and_optimizer(
        self, model: "Module", optimizer: "Optimizer | None", lr_scheduler: Any | None = None
    ) -> tuple[Any, Any]:
        with _deepspeed.freeze_set_device():
            engine, optimizer = super()._setup_model_and_optimizer(model, optimizer, lr_scheduler)
        # The engine has moved the module to "hpu". Moving it again would move offloaded parameters, too.
        set_module_device(model)
        _nvme_checkpoint.patch_engine(engine)
        return engine, optimizer

    def _initialize_deepspeed_inference(self, model: "Module") -> None:
        with _deepspeed.freeze_set_device():
            if self._inference_options:
                config = {"dtype": _ENGINE_DTYPES[self.precision_plugin.precision.partition("-")[0]]}
                config.update(self._inference_options)
                self.model = _deepspeed.load().init_inference(model, config=config)
            else:
                super()._initialize_deepspeed_inference(model)
        set_module_device(model)

    def _load_for_inference(self, path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        """Load a file into the module of the inference engine."""
        checkpoint = super(DeepSpeedStrategy, self).load_checkpoint(path, **options)
        module: Any = self.lightning_module
        module.load_state_dict(checkpoint["state_dict"], strict=getattr(module, "strict_loading", True))
        return checkpoint
