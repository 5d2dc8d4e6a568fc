"""Training with DeepSpeed on Gaudi cards, with Fabric."""

from typing import Any, Final

import torch
from packaging.version import Version

from hpu_core import bridge, frameworks
from hpu_core.parallel import FabricHPUParallelStrategyBase
from hpu_deepspeed import _config, _swapped, _vendor
from hpu_deepspeed._cards import OnCards
from hpu_deepspeed._folder import present
from hpu_deepspeed._lightning import FabricDeepSpeedPrecision, FabricDeepSpeedStrategy
from hpu_deepspeed.precision import FabricHPUDeepSpeedPrecision

# Lightning 2.0 looks for an optimizer of torch's among what is to be loaded, later ones for DeepSpeed's, too.
_KNOWS_OPTIMIZERS: Final = Version("2.1.dev0")


class _OnAnyAccelerator(FabricDeepSpeedStrategy):
    """Lightning's strategy without its check for CUDA; FabricHPUStrategy has one of its own."""

    def setup_environment(self) -> None:
        super(FabricDeepSpeedStrategy, self).setup_environment()

    def load_checkpoint(self, path: Any, state: Any = None, *args: Any, **kwargs: Any) -> dict[str, Any]:
        _vendor.keep_old_names()
        whole = self.load_full_weights and self.zero_stage_3
        if frameworks.current().version >= _KNOWS_OPTIMIZERS or whole or not _vendor.has_optimizer(state):
            return super().load_checkpoint(path, state, *args, **kwargs)
        state[__name__] = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        try:
            return super().load_checkpoint(path, state, *args, **kwargs)
        finally:
            del state[__name__]


class FabricHPUDeepSpeedStrategy(OnCards, FabricHPUParallelStrategyBase, _OnAnyAccelerator):
    """Fabric's twin of HPUDeepSpeedStrategy, with the same names.

    As with Lightning's own, a configuration with `gradient_accumulation_steps` is DeepSpeed's to count.

    Args:
        *args: As those of Fabric's DeepSpeedStrategy.
        **kwargs: The same. `process_group_backend` is "hccl"; `timeout` works on every Lightning.
    """

    @staticmethod
    def precision_plugin_for(precision: Any) -> FabricDeepSpeedPrecision:
        """Return the precision plugin for Fabric's `precision`.

        Raises:
            ValueError: DeepSpeed does not train in it.
        """
        return FabricHPUDeepSpeedPrecision(precision)

    def setup_environment(self) -> None:
        """Open this rank's card and make the process group.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator.
            NotImplementedError: This DeepSpeed cannot offload to NVMe on Gaudi.
            OSError: The folder to offload to is not there, or cannot be written.
            RuntimeError: No card could be opened, or a compiler is missing.
        """
        self._set_world_ranks()
        super().setup_environment()

    def save_checkpoint(self, path: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Have each rank save its part of a checkpoint, a folder, which takes its place when all have.

        Args:
            path: The folder.
            state: The module that Fabric has set up, and whatever else is to be saved.
            *args: Lightning's.
            **kwargs: Lightning's.
        """
        with self._replacing(path) as partial:
            super().save_checkpoint(partial, state, *args, **kwargs)

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Have each rank load its part of a checkpoint.

        Args:
            path: The folder.
            *args: Lightning's.
            **kwargs: Lightning's.

        Returns:
            What the checkpoint has besides.
        """
        return super().load_checkpoint(present(path), *args, **kwargs)

    def _set_world_ranks(self) -> None:
        bridge.clear_default_rendezvous_env()
        super()._set_world_ranks()

    def _setup_distributed(self) -> None:
        self._set_world_ranks()
        self._make_process_group()
        # The rest of what Lightning does here.
        if not self._config_initialized:
            self._format_config()
            self._config_initialized = True

    def _format_config(self) -> None:
        super()._format_config()
        _config.check_batch_sizes(self.config, self.world_size)

    def _initialize_engine(self, *args: Any, **kwargs: Any) -> Any:
        with self._with_index():
            made = super()._initialize_engine(*args, **kwargs)
        # The engine and what belongs to it: an optimizer, and from Lightning 2.6 on a scheduler.
        _swapped.install(made[0])
        _vendor.let_weights_be_loaded(made[0])
        return made
