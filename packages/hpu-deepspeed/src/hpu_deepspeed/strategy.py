"""Training with DeepSpeed on Gaudi cards, with the Trainer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version
from torch import Tensor

from hpu_core import bridge, frameworks
from hpu_core.parallel import HPUParallelStrategyBase
from hpu_deepspeed import _config, _swapped, _vendor
from hpu_deepspeed._cards import OnCards
from hpu_deepspeed._folder import present
from hpu_deepspeed._lightning import (
    DeepSpeedPrecision,
    DeepSpeedStrategy,
    MisconfigurationException,
    NoOptimizer,
    rank_zero_warn,
)
from hpu_deepspeed.precision import HPUDeepSpeedPrecisionPlugin

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer


# Lightning 2.0 asks for CUDA in `init_deepspeed`, later ones in `setup_environment`.
_ASKS_BEFORE: Final = Version("2.1.dev0")


class _OnAnyAccelerator(DeepSpeedStrategy):
    """Lightning's strategy without its check for CUDA; HPUStrategy has one of its own."""

    def setup_environment(self) -> None:
        super(DeepSpeedStrategy, self).setup_environment()

    def init_deepspeed(self) -> None:
        if frameworks.current().version >= _ASKS_BEFORE:
            super().init_deepspeed()
            return
        module: Any = self.lightning_module
        if str(module.trainer.gradient_clip_algorithm).lower().endswith("value"):
            raise MisconfigurationException("DeepSpeed does not support clipping gradients by value.")
        # Has `forward` run the step that the Trainer is at; newer Lightning does that without a wrapper.
        model = frameworks.current().pytorch("overrides.base")._LightningModuleWrapperBase(self.model)  # noqa: SLF001 - see above.
        initialize = (
            self._initialize_deepspeed_train if module.trainer.training else self._initialize_deepspeed_inference
        )
        initialize(model)


class HPUDeepSpeedStrategy(OnCards, HPUParallelStrategyBase, _OnAnyAccelerator):
    """Trains with DeepSpeed's ZeRO on Gaudi cards; its names in Lightning are "hpu_deepspeed", "..._stage_1" and so on.

    Lightning's DeepSpeedStrategy does the work. This class adds what a card needs: DeepSpeed for Gaudi, HCCL, one card
    per process; and it differs from Lightning's in this:

    - Gradients are scaled for accumulation once, and the last batches of an epoch, if fewer than
      `accumulate_grad_batches`, are a step as with other strategies.
    - An optimizer or scheduler that the module returns is used, with a warning if the configuration has one as well.
    - A checkpoint takes its place when it is whole.
    - The configuration is checked before the training starts.

    Args:
        *args: As those of Lightning's DeepSpeedStrategy: `zero_optimization`, `stage`, `config` and the others.
        **kwargs: The same. `process_group_backend` is "hccl"; `timeout` works on every Lightning.

    Raises:
        ImportError: DeepSpeed is too old.
        ModuleNotFoundError: DeepSpeed or the Gaudi bridge is not installed.
        RuntimeError: DeepSpeed was imported for another accelerator.
        TypeError: An argument, or a part of the configuration, is of the wrong type.
        ValueError: The configuration has a value or an option that DeepSpeed does not take.
    """

    strategy_name = "hpu_deepspeed"

    @staticmethod
    def precision_plugin_for(precision: Any) -> DeepSpeedPrecision:
        """Return the precision plugin for the Trainer's `precision`.

        Raises:
            ValueError: DeepSpeed does not train in it.
        """
        return HPUDeepSpeedPrecisionPlugin(precision)

    @property
    def handles_gradient_accumulation(self) -> bool:
        """Return False. Which batches are a step is for Lightning to say, so that the last of an epoch are one, too."""
        return False

    def set_world_ranks(self) -> None:
        """Find out which rank this process is."""
        bridge.clear_default_rendezvous_env()
        super().set_world_ranks()

    def setup_environment(self) -> None:
        """Open this rank's card and make the process group.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator, or the precision plugin is not
                DeepSpeed's.
            NotImplementedError: This DeepSpeed cannot offload to NVMe on Gaudi.
            OSError: The folder to offload to is not there, or cannot be written.
            RuntimeError: No card could be opened, or a compiler is missing.
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
        """Take this process's rank and make the process group."""
        self.set_world_ranks()
        self._make_process_group()
        if not hasattr(self, "_init_config_if_needed") and not self._config_initialized:
            # Lightning 2.0 and 2.1 do this here, later ones in `setup`.
            self._format_config()
            self._config_initialized = True

    def backward(self, closure_loss: Tensor, optimizer: "Optimizer | None", *args: Any, **kwargs: Any) -> Tensor:
        """Compute gradients with DeepSpeed's engine, which reduces them over all ranks.

        Args:
            closure_loss: The loss, scalar; Lightning has divided it by `accumulate_grad_batches`.
            optimizer: Of no account.
            *args: For the engine.
            **kwargs: For the engine.

        Returns:
            The loss.
        """
        module = self.lightning_module
        if module is not None and module.automatic_optimization:
            # How many batches a step has is Lightning's count, which begins anew in each epoch.
            accumulates = module.trainer.fit_loop._should_accumulate()  # noqa: SLF001 - the same on Lightning 2.0 to 2.6.
            self.deepspeed_engine.set_gradient_accumulation_boundary(not accumulates)
        # The engine would divide it once more.
        return super().backward(closure_loss, optimizer, *args, scale_wrt_gas=False, **kwargs)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Do nothing: where gradients are accumulated, the engine knows from `backward` that it need not reduce them.

        Its own context for this refuses ZeRO stages 2 and 3.
        """
        yield

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        """Have each rank save its part of a checkpoint, a folder, which takes its place when all have.

        Args:
            checkpoint: The state of the Trainer; that of module and optimizer is the engine's.
            filepath: The folder.
            storage_options: Not supported, as in Lightning's strategy.

        Raises:
            TypeError: `storage_options` is given.
        """
        with self._replacing(filepath) as partial:
            super().save_checkpoint(checkpoint, partial, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Have each rank load its part of a checkpoint.

        Args:
            checkpoint_path: The folder.
            *args: Lightning's, from 2.6 on.
            **kwargs: The same.

        Returns:
            The state of the Trainer.
        """
        _vendor.let_weights_be_loaded(self.model)
        return super().load_checkpoint(present(checkpoint_path), *args, **kwargs)

    def teardown(self) -> None:
        """Let go of the card."""
        # Only an engine has this. In stage 3, weights may still be whole on the card, and DeepSpeed believes that they
        # stay there, but Lightning moves them to the host: the module could not be tested after it was fitted.
        release = getattr(self.model, "empty_partition_cache", None)
        if release is not None:
            release()
        super().teardown()

    def _format_config(self) -> None:
        trainer = self.lightning_module.trainer if self.lightning_module is not None else None
        if trainer is not None:
            _config.check_clipping(self.config, trainer.gradient_clip_val)
        super()._format_config()
        _config.check_batch_sizes(self.config, self.world_size)

    def _initialize_deepspeed_train(self, model: "Module") -> None:
        # The module is asked once; Lightning would not ask it if the configuration has an optimizer.
        optimizer, scheduler = given = self._optimizer_of_module()
        if isinstance(optimizer, NoOptimizer):
            if "optimizer" not in self.config:
                raise MisconfigurationException(
                    "`configure_optimizers` returned no optimizer and the DeepSpeed config has none: one of them "
                    "must have one"
                )
            super()._initialize_deepspeed_train(model)
            return
        self._prefer_modules("optimizer")
        if scheduler is not None:
            self._prefer_modules("scheduler")
        self._init_optimizers = lambda: given  # type: ignore[method-assign] # For the call below alone.
        try:
            super()._initialize_deepspeed_train(model)
        finally:
            del self._init_optimizers

    def _optimizer_of_module(self) -> tuple[Any, Any]:
        """Ask the module for its optimizer and scheduler."""
        try:
            return self._init_optimizers()
        except RuntimeError as error:
            # Lightning advises to optimize several by hand, which it does not let DeepSpeed do either.
            if "multiple optimizers" not in str(error):
                raise
            raise MisconfigurationException(
                "DeepSpeed trains with one optimizer, and `configure_optimizers` returned several: put their "
                "parameters into groups of one"
            ) from error

    def _prefer_modules(self, name: str) -> None:
        if self.config.pop(name, None) is not None:
            rank_zero_warn(
                f"`configure_optimizers` and the DeepSpeed config both say which {name} to use: the module's is used, "
                "and the config's is not"
            )
            _config.complete(self.config)

    def _setup_model_and_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        with self._with_index():
            engine, optimizer = super()._setup_model_and_optimizer(*args, **kwargs)
        _swapped.install(engine)
        return engine, optimizer

    def _initialize_deepspeed_inference(self, model: "Module") -> None:
        with self._with_index():
            super()._initialize_deepspeed_inference(model)
