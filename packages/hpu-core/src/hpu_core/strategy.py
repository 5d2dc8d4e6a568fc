"""Base of the Trainer's strategies on HPU, and that for one device."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from hpu_core import _rendezvous_env, casts, sharded_modules
from hpu_core._lightning import (
    SingleDeviceStrategy,
    Strategy,
    load_late_loader_states,
    update_properties,
)
from hpu_core._step_errors import explain, explain_errors
from hpu_core._strategy_mixin import HPUStrategyMixin, validate_device
from hpu_core.arguments import supported_arguments
from hpu_core.distributed.launcher import HPUSubprocessScriptLauncher
from hpu_core.distributed.signals import SignalCoordinator

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO
    from lightning.fabric.utilities.types import _DEVICE, _PATH
    from lightning.pytorch import Trainer
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.precision import Precision
    from lightning.pytorch.utilities.types import STEP_OUTPUT
    from torch.optim import Optimizer


class HPUStrategy(HPUStrategyMixin, Strategy):
    """Base of the Trainer's strategies on HPU; list it before Lightning's strategy.

    In lazy mode, a training step is two graphs: the forward and backward pass, then gradient clipping and the optimizer
    step. The graph is launched after each backward pass (also with manual optimization), after the optimizer step,
    before each validation, test and predict step, and after validation. In eager mode, nothing is called.
    """

    reduce = HPUStrategyMixin.reduce_over_ranks  # Lightning's name for it here.

    _script_launcher = HPUSubprocessScriptLauncher
    _signals: SignalCoordinator | None = None

    def set_world_ranks(self) -> None:
        """Set the rank of this process; Lightning's FSDP strategies call this again after the ranks have joined."""
        # A strategy for one device has no ranks.
        if not self.process_groups.has_rank and hasattr(super(), "set_world_ranks"):
            _rendezvous_env.clear()
            super().set_world_ranks()  # type: ignore[misc] # Lightning's strategy for several devices has it.

    _set_rank = set_world_ranks

    @property
    def shards_parameters(self) -> bool:
        """Whether each card holds a part of the parameters."""
        return False

    @property
    def sharding_arguments(self) -> dict[str, Any]:
        """Arguments that a module depends on once this strategy has sharded it, see `sharded_modules`."""
        return {"strategy": self.strategy_name, "devices": self.world_size}

    def setup(self, trainer: "Trainer") -> None:
        """Set the module up.

        Raises:
            ValueError: Another strategy has sharded it.
            MisconfigurationException: A callback needs whole parameters, and the strategy shards them.
        """
        sharded_modules.check(trainer.lightning_module, self.sharding_arguments)
        if self.shards_parameters and trainer.world_size > 1:
            sharded_modules.check_callbacks(trainer.callbacks)  # type: ignore[attr-defined] # mypy does not see the Trainer's attribute, which Lightning 2.0 to 2.6 set.
        with self.process_groups.step("setup"):
            super().setup(trainer)
        if self.shards_parameters:
            sharded_modules.move_rest(trainer.lightning_module, self.root_device)
        if self.process_groups.control_store is not None and trainer.training:
            self._signals = SignalCoordinator(trainer, self.process_groups)

    @functools.cached_property
    def _in_backward(self) -> ExitStack:
        """The contexts of a backward pass, from `pre_backward` to `post_backward`, or to the end of a failed step."""
        return ExitStack()

    def pre_backward(self, closure_loss: torch.Tensor) -> None:
        """Compute gradients without casts, also where a module with manual optimization does so inside of its step."""
        self._in_backward.enter_context(self.process_groups.step("backward"))
        self._in_backward.enter_context(casts.disabled())
        super().pre_backward(closure_loss)

    def optimizer_step(
        self, optimizer: "Optimizer", closure: Callable[[], Any], model: Any | None = None, **kwargs: Any
    ) -> Any:
        """Run the optimizer step without casts, as `backward`, and its closure as it would run here."""
        if casts.are_enabled():
            closure = _within(self.precision_plugin.forward_context, closure)
        with casts.disabled(), explain_errors(), self._in_backward:
            return super().optimizer_step(optimizer, closure, model, **kwargs)

    def post_backward(self, closure_loss: torch.Tensor) -> None:
        """Launch the graph of the forward and backward pass (lazy mode).

        Lightning 2 calls this after each backward pass, also after `manual_backward`.
        """
        super().post_backward(closure_loss)
        self._in_backward.close()
        self._mark_step_if_lazy()

    def training_step(self, *args: Any, **kwargs: Any) -> "STEP_OUTPUT":
        """Run the module's `training_step`; errors of programs for other devices end with what to write here."""
        with self.process_groups.step("training step"), explain_errors(), self._in_backward:
            return super().training_step(*args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> "STEP_OUTPUT":
        """Launch the recorded graph (lazy mode), then run the module's `validation_step`."""
        with self._evaluation_step():
            return super().validation_step(*args, **kwargs)

    def on_validation_end(self) -> None:
        """Launch the last validation step's graph (lazy mode), or it would join the next training step's."""
        super().on_validation_end()
        self._mark_step_if_lazy()

    def test_step(self, *args: Any, **kwargs: Any) -> "STEP_OUTPUT":
        """Launch the recorded graph (lazy mode), then run the module's `test_step`."""
        with self._evaluation_step():
            return super().test_step(*args, **kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the recorded graph (lazy mode), then run the module's `predict_step`."""
        with self._evaluation_step():
            return super().predict_step(*args, **kwargs)

    @contextmanager
    def _evaluation_step(self) -> Iterator[None]:
        self._mark_step_if_lazy()
        with self.process_groups.step("evaluation step"), explain_errors():
            yield

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the module's state, for which the ranks may need each other."""
        if not self.saves_alone:
            with self.process_groups.wait("checkpoint saving"):
                pass
        return super().lightning_module_state_dict()

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # noqa: A002 - Lightning's name.
        """Return whether all ranks, or any, decide so; on a rank that has failed, its own decision."""
        if self.process_groups.error is not None:
            return decision
        return bool(super().reduce_boolean_decision(decision, all))

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: "_PATH", storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint.

        One that the ranks write together, a file or a folder, replaces `filepath` once it is complete on all of them.

        Raises:
            IsADirectoryError: One file cannot replace a folder that is not a checkpoint.
            TypeError: `storage_options` is set for a checkpoint that the ranks write together.
        """
        method = super().save_checkpoint

        def save(path: "_PATH", state: dict[str, Any]) -> None:
            method(state, path, storage_options)

        self._save(save, filepath, checkpoint, storage_options)

    def remove_checkpoint(self, filepath: Any) -> None:
        """Remove a checkpoint, after an asynchronous save that may replace it as the last good one."""
        remove = functools.partial(super().remove_checkpoint, filepath)
        if self.saves is None:
            remove()
        else:
            self.saves.call_after(remove)

    def load_checkpoint(self, checkpoint_path: "_PATH", weights_only: bool | None = None) -> dict[str, Any]:
        """Load a checkpoint, a sharded one of any number of devices, except for DeepSpeed's.

        Raises:
            TypeError: `weights_only`, an argument of `torch.load`, is set, which needs Lightning 2.6.
            ValueError: It is a checkpoint of another strategy, or of DeepSpeed and another number of devices.
        """
        method: Callable[..., Any] = super().load_checkpoint
        options = supported_arguments(method, weights_only=weights_only)
        return self._load(method, checkpoint_path, None, options)

    def on_train_start(self) -> None:
        """Restore the positions of loaders that were made before the checkpoint was."""
        super().on_train_start()
        trainer = getattr(self.lightning_module, "trainer", None)
        if trainer is not None:
            load_late_loader_states(trainer)

    def on_exception(self, exception: BaseException) -> None:
        """Have an error of a program for other devices, in a callback for instance, end with what to write here."""
        super().on_exception(exception)
        if isinstance(exception, Exception):
            explain(exception)

    def teardown(self) -> None:
        """Move everything off the device, which stays with the process until it exits, and leave the other ranks."""
        if self._signals is not None:
            self._signals.remove()
            self._signals = None
        super().teardown()


class SingleHPUStrategy(HPUStrategy, SingleDeviceStrategy):
    """Strategy for training on one HPU, registered as "hpu_single".

    Args:
        device: "hpu" or "hpu:0". A process has one device, so other indices are invalid.
        accelerator: The accelerator, if it is not passed to the Trainer.
        checkpoint_io: Plugin that writes and reads checkpoints; `HPUCheckpointIO` if None.
        precision_plugin: Lightning's precision plugin; 32-bit if None.

    Raises:
        ValueError: `device` is not an HPU, or has an index other than 0.
    """

    strategy_name = "hpu_single"

    def __init__(
        self,
        device: "_DEVICE" = "hpu",
        accelerator: "Accelerator | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision_plugin: "Precision | None" = None,
    ) -> None:
        super().__init__(validate_device(device), accelerator, checkpoint_io, precision_plugin)


def _within(context: Callable[[], AbstractContextManager[Any]], function: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        with context():
            return function()

    return call


def set_module_device(module: torch.nn.Module) -> None:
    """Set `LightningModule.device` of a module to "hpu:0", the device of every tensor, without moving the module."""
    update_properties(module, device=torch.device("hpu", 0))
