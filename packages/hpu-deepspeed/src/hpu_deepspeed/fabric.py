"""Fabric's DeepSpeed strategy for HPUs."""

from typing import Any, Final

import torch
from packaging.version import Version

from hpu_core import bridge, frameworks
from hpu_core.parallel import FabricHPUParallelStrategyBase
from hpu_deepspeed import _atomic_dir, _config, _deepspeed, _nvme_checkpoint
from hpu_deepspeed._lightning import FabricDeepSpeedPrecision, FabricDeepSpeedStrategy
from hpu_deepspeed._mixin import HPUDeepSpeedMixin
from hpu_deepspeed.precision import FabricHPUDeepSpeedPrecision

# Lightning 2.0 loads the optimizer's state only if the state contains an optimizer of torch's; later releases also
# accept one of DeepSpeed's.
_LIGHTNING_2_1: Final = Version("2.1.dev0")


class _SkipCudaCheck(FabricDeepSpeedStrategy):
    """Lightning's strategy without its check for CUDA; FabricHPUStrategy checks the accelerator."""

    def setup_environment(self) -> None:
        super(FabricDeepSpeedStrategy, self).setup_environment()

    def load_checkpoint(self, path: Any, state: Any = None, *args: Any, **kwargs: Any) -> dict[str, Any]:
        _deepspeed.alias_moved_optimizer()
        full_weights = self.load_full_weights and self.zero_stage_3
        if frameworks.current().version >= _LIGHTNING_2_1 or full_weights or not _deepspeed.has_optimizer(state):
            return super().load_checkpoint(path, state, *args, **kwargs)
        state[__name__] = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        try:
            return super().load_checkpoint(path, state, *args, **kwargs)
        finally:
            del state[__name__]


class FabricHPUDeepSpeedStrategy(HPUDeepSpeedMixin, FabricHPUParallelStrategyBase, _SkipCudaCheck):
    """DeepSpeed ZeRO strategy for HPUs with Fabric, registered under the same names as the Trainer's.

    DeepSpeed counts accumulated batches if the configuration has `gradient_accumulation_steps`, as with Lightning's
    strategy.

    Args:
        *args: Arguments of Fabric's DeepSpeedStrategy.
        **kwargs: The same. `process_group_backend` is "hccl"; `timeout` works with every Lightning.
    """

    @staticmethod
    def precision_plugin_for(precision: Any) -> FabricDeepSpeedPrecision:
        """Return the precision plugin for Fabric's `precision`.

        Raises:
            ValueError: DeepSpeed does not support the precision.
        """
        return FabricHPUDeepSpeedPrecision(precision)

    def setup_environment(self) -> None:
        """Open this rank's device and create the process group.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator.
            NotImplementedError: This DeepSpeed cannot offload to NVMe on Gaudi.
            OSError: `nvme_path` does not exist or is not writable.
            RuntimeError: No device can be opened, or a compiler is missing.
        """
        self._set_world_ranks()
        super().setup_environment()

    def save_checkpoint(self, path: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Save this rank's shard of a checkpoint directory, which replaces `path` once every rank has saved.

        Args:
            path: The directory.
            state: The module that Fabric has set up, and any other objects to save.
            *args: Arguments of Lightning's method.
            **kwargs: The same.
        """
        with self._atomic_checkpoint(path) as partial:
            super().save_checkpoint(partial, state, *args, **kwargs)

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Load this rank's shard of a checkpoint directory.

        Args:
            path: The directory.
            *args: Arguments of Lightning's method.
            **kwargs: The same.

        Returns:
            The saved objects that are not in `state`.
        """
        return super().load_checkpoint(_atomic_dir.resolve(path), *args, **kwargs)

    def _set_world_ranks(self) -> None:
        bridge.clear_default_rendezvous_env()
        super()._set_world_ranks()

    def _setup_distributed(self) -> None:
        self._set_world_ranks()
        self._make_process_group()
        if not self._config_initialized:
            self._format_config()
            self._config_initialized = True

    def _format_config(self) -> None:
        super()._format_config()
        _config.validate_batch_sizes(self.config, self.world_size)

    def _initialize_engine(self, *args: Any, **kwargs: Any) -> Any:
        with self._device_index_context():
            initialized = super()._initialize_engine(*args, **kwargs)
        # Engine and optimizer; Lightning 2.6 adds a scheduler.
        _nvme_checkpoint.patch_engine(initialized[0])
        _deepspeed.patch_weight_loading(initialized[0])
        return initialized
