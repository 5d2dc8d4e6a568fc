"""The Trainer's DeepSpeed strategy for HPUs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version
from torch import Tensor

from hpu_core import bridge, frameworks
from hpu_core.parallel import HPUParallelStrategyBase
from hpu_deepspeed import _atomic_dir, _config, _deepspeed, _nvme_checkpoint
from hpu_deepspeed._lightning import (
    DeepSpeedPrecision,
    DeepSpeedStrategy,
    MisconfigurationException,
    MockOptimizer,
    rank_zero_warn,
)
from hpu_deepspeed._mixin import HPUDeepSpeedMixin
from hpu_deepspeed.precision import HPUDeepSpeedPrecisionPlugin

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer


# Lightning 2.0 requires CUDA in `init_deepspeed`, later releases in `setup_environment`.
_LIGHTNING_2_1: Final = Version("2.1.dev0")


class _SkipCudaCheck(DeepSpeedStrategy):
    """Lightning's strategy without its check for CUDA; HPUStrategy checks the accelerator."""

    def setup_environment(self) -> None:
        super(DeepSpeedStrategy, self).setup_environment()

    def init_deepspeed(self) -> None:
        if frameworks.current().version >= _LIGHTNING_2_1:
            super().init_deepspeed()
            return
        module: Any = self.lightning_module
        if str(module.trainer.gradient_clip_algorithm).lower().endswith("value"):
            raise MisconfigurationException("DeepSpeed does not support clipping gradients by value.")
        # The wrapper's `forward` calls the Trainer's current step; newer Lightning needs no wrapper.
        model = frameworks.current().pytorch("overrides.base")._LightningModuleWrapperBase(self.model)  # noqa: SLF001 - Lightning 2.0 only.
        initialize = (
            self._initialize_deepspeed_train if module.trainer.training else self._initialize_deepspeed_inference
        )
        initialize(model)


class HPUDeepSpeedStrategy(HPUDeepSpeedMixin, HPUParallelStrategyBase, _SkipCudaCheck):
    """DeepSpeed ZeRO strategy for HPUs, registered as "hpu_deepspeed", "hpu_deepspeed_stage_1" and so on.

    Extends Lightning's DeepSpeedStrategy with DeepSpeed for Gaudi, HCCL and one device per process. It also differs in
    these points:

    - Gradients are scaled for accumulation once. The last batches of an epoch are an optimizer step even if they are
      fewer than `accumulate_grad_batches`, as with other strategies.
    - The module's optimizer and scheduler take precedence over those in the configuration, with a warning.
    - Checkpoints are written atomically.
    - The configuration is validated before training starts.

    Args:
        *args: Arguments of Lightning's DeepSpeedStrategy: `zero_optimization`, `stage`, `config` and the others.
        **kwargs: The same. `process_group_backend` is "hccl"; `timeout` works with every Lightning.

    Raises:
        ImportError: DeepSpeed is too old.
        ModuleNotFoundError: DeepSpeed or the Gaudi bridge is not installed.
        RuntimeError: DeepSpeed was imported for another accelerator.
        TypeError: An argument or a section of the configuration is of the wrong type.
        ValueError: The configuration has an unknown option or an invalid value.
    """

    strategy_name = "hpu_deepspeed"

    @staticmethod
    def precision_plugin_for(precision: Any) -> DeepSpeedPrecision:
        """Return the precision plugin for the Trainer's `precision`.

        Raises:
            ValueError: DeepSpeed does not support the precision.
        """
        return HPUDeepSpeedPrecisionPlugin(precision)

    @property
    def handles_gradient_accumulation(self) -> bool:
        """False: Lightning decides after which batches to step, including the last one of an epoch."""
        return False

    def set_world_ranks(self) -> None:
        """Set the rank of this process from the cluster environment."""
        bridge.clear_default_rendezvous_env()
        super().set_world_ranks()

    def setup_environment(self) -> None:
        """Open this rank's device and create the process group.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator, or the precision plugin is not
                DeepSpeed's.
            NotImplementedError: This DeepSpeed cannot offload to NVMe on Gaudi.
            OSError: `nvme_path` does not exist or is not writable.
            RuntimeError: No device can be opened, or a compiler is missing.
        """
        if not isinstance(self.precision_plugin, DeepSpeedPrecision):
            raise MisconfigurationException(
                f"{type(self).__name__} needs a precision plugin for DeepSpeed, got "
                f"{type(self.precision_plugin).__name__}: pass `precision=` to the Trainer, or "
                "`plugins=HPUDeepSpeedPrecisionPlugin(...)`"
            )
        self.set_world_ranks()
        super().setup_environment()

    def setup_distributed(self) -> None:
        """Set the rank of this process and create the process group."""
        self.set_world_ranks()
        self._make_process_group()
        if not hasattr(self, "_init_config_if_needed") and not self._config_initialized:
            # Lightning 2.0 and 2.1 do this here, later releases in `setup`.
            self._format_config()
            self._config_initialized = True

    def backward(self, closure_loss: Tensor, optimizer: "Optimizer | None", *args: Any, **kwargs: Any) -> Tensor:
        """Run the backward pass of DeepSpeed's engine, which reduces gradients over all ranks.

        Args:
            closure_loss: Scalar loss, already divided by `accumulate_grad_batches`.
            optimizer: Ignored.
            *args: Passed on to the engine.
            **kwargs: Passed on to the engine.

        Returns:
            The loss.
        """
        module = self.lightning_module
        if module is not None and module.automatic_optimization:
            # Lightning restarts its count of accumulated batches in each epoch, DeepSpeed does not.
            accumulates = module.trainer.fit_loop._should_accumulate()  # noqa: SLF001 - the same on Lightning 2.0 to 2.6.
            self.deepspeed_engine.set_gradient_accumulation_boundary(not accumulates)
        # By default the engine divides the loss by the accumulation steps as well.
        return super().backward(closure_loss, optimizer, *args, scale_wrt_gas=False, **kwargs)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Do nothing, because `backward` sets the engine's accumulation boundary.

        The engine's own context manager, `no_sync`, does not support ZeRO stages 2 and 3.
        """
        yield

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        """Save this rank's shard of a checkpoint directory, which replaces `filepath` once every rank has saved.

        Args:
            checkpoint: The Trainer's state. The engine saves the state of module and optimizer.
            filepath: The directory.
            storage_options: Not supported, as in Lightning's strategy.

        Raises:
            TypeError: `storage_options` is not None.
        """
        with self._atomic_checkpoint(filepath) as partial:
            super().save_checkpoint(checkpoint, partial, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Load this rank's shard of a checkpoint directory.

        Args:
            checkpoint_path: The directory.
            *args: Arguments of Lightning's method, from 2.6 on.
            **kwargs: The same.

        Returns:
            The Trainer's state.
        """
        _deepspeed.patch_weight_loading(self.model)
        return super().load_checkpoint(_atomic_dir.resolve(checkpoint_path), *args, **kwargs)

    def teardown(self) -> None:
        """Release the engine's parameters and the device."""
        # In stage 3, weights may still be gathered on the device. Lightning moves them to the host without telling
        # DeepSpeed, so without this call the module cannot be tested after `fit`. Only an engine has the method.
        release = getattr(self.model, "empty_partition_cache", None)
        if release is not None:
            release()
        super().teardown()

    def _format_config(self) -> None:
        trainer = self.lightning_module.trainer if self.lightning_module is not None else None
        if trainer is not None:
            _config.validate_gradient_clipping(self.config, trainer.gradient_clip_val)
        super()._format_config()
        _config.validate_batch_sizes(self.config, self.world_size)

    def _initialize_deepspeed_train(self, model: "Module") -> None:
        # Lightning would not call `configure_optimizers` if the configuration has an optimizer.
        optimizer, scheduler = configured = self._configure_optimizers()
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

    def _configure_optimizers(self) -> tuple[Any, Any]:
        """Return the module's optimizer and scheduler."""
        try:
            return self._init_optimizers()
        except RuntimeError as error:
            # Lightning's error suggests manual optimization, which needs a single optimizer with DeepSpeed, too.
            if "multiple optimizers" not in str(error):
                raise
            raise MisconfigurationException(
                "`configure_optimizers` must return a single optimizer with DeepSpeed, got several: use one optimizer "
                "with parameter groups"
            ) from error

    def _remove_from_config(self, name: str) -> None:
        """Remove an optimizer or scheduler that the module overrides."""
        if self.config.pop(name, None) is not None:
            rank_zero_warn(
                f"both `configure_optimizers` and the DeepSpeed config define the {name}: the one in the config is "
                "ignored"
            )
            _config.fill_defaults(self.config)

    def _setup_model_and_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        with self._device_index_context():
            engine, optimizer = super()._setup_model_and_optimizer(*args, **kwargs)
        _nvme_checkpoint.patch_engine(engine)
        return engine, optimizer

    def _initialize_deepspeed_inference(self, model: "Module") -> None:
        with self._device_index_context():
            super()._initialize_deepspeed_inference(model)
