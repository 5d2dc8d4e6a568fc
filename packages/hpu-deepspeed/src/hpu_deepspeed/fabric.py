"""Fabric's DeepSpeed strategy for HPUs."""

import logging
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from hpu_core.distributed.process_group import TIMEOUT
from hpu_core.fabric import FabricHPUStrategy
from hpu_deepspeed import _deepspeed, _lightning_2_3, _nvme_checkpoint, _setup
from hpu_deepspeed._lightning import FabricDeepSpeedStrategy
from hpu_deepspeed.precision import FabricHPUDeepSpeedPrecision

if TYPE_CHECKING:
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import Precision
    from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
    from lightning.fabric.utilities.types import _PATH

__all__ = ["FabricHPUDeepSpeedStrategy", "HPUDeepSpeedStrategy"]


class FabricHPUDeepSpeedStrategy(FabricHPUStrategy, FabricDeepSpeedStrategy):
    """DeepSpeed ZeRO strategy for HPUs with Fabric, registered under the same names as the Trainer's.

    DeepSpeed counts accumulated batches if the configuration has `gradient_accumulation_steps`, as with Lightning's
    strategy.

    The arguments and errors are those of the Trainer's HPUDeepSpeedStrategy, except:

    Args:
        logging_batch_size_per_gpu: Batch size per device, for DeepSpeed's throughput log; 1 if None.
        precision: Precision plugin; chosen by Fabric's `precision` if None.
    """

    precision_plugin_for = FabricHPUDeepSpeedPrecision
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
        logging_batch_size_per_gpu: int | None = None,
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
        precision: "Precision | None" = None,
        process_group_backend: str | None = None,
        timeout: timedelta | None = TIMEOUT,
        exclude_frozen_parameters: bool = False,
        failure_detection: bool = True,
        async_save: bool = False,
    ) -> None:
        super().__init__(**_setup.take_arguments(self, locals(), FabricDeepSpeedStrategy))
        _setup.finish(self)

    def _set_up_by_lightning(self) -> None:
        # Not by its own method, which requires CUDA.
        super(FabricDeepSpeedStrategy, self).setup_environment()

    def _load(
        self, load_checkpoint: Any, path: "_PATH", state: Any | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Load this rank's shard of a checkpoint directory, or a file with `load_full_weights`."""
        checkpoint = self.locate_checkpoint(path)
        with _lightning_2_3.loading_optimizer(state, full_weights=self.load_full_weights and self.zero_stage_3):
            return super()._load(load_checkpoint, checkpoint, state, options)

    def _setup_distributed(self) -> None:
        _setup.set_up_distributed(self)
        if not self._config_initialized:
            self._format_config()
            self._config_initialized = True

    def _format_config(self) -> None:
        # DeepSpeed's own default clips gradients to a norm of 1. The Trainer's strategy sets the Trainer's value.
        self.config.setdefault("gradient_clipping", 0.0)
        _setup.prepare_config(self, self.precision.precision)
        super()._format_config()

    def _initialize_engine(self, *args: Any, **kwargs: Any) -> Any:
        with _deepspeed.freeze_set_device():
            initialized = super()._initialize_engine(*args, **kwargs)
        # Engine and optimizer; Lightning 2.6 adds a scheduler.
        _nvme_checkpoint.patch_engine(initialized[0])
        _deepspeed.patch_weight_loading(initialized[0])
        return initialized


# Lightning's strategies have the same name in both namespaces.
HPUDeepSpeedStrategy = FabricHPUDeepSpeedStrategy
