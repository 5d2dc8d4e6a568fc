"""Base of Fabric's strategies on HPU, and that for one device."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from hpu_core import _lightning_2_0, _rendezvous_env, frameworks
from hpu_core._lightning import FabricSingleDeviceStrategy, FabricStrategy
from hpu_core._step_errors import explain_errors
from hpu_core._strategy_mixin import HPUStrategyMixin, validate_device
from hpu_core.arguments import supported_arguments
from hpu_core.distributed.launcher import FabricHPUSubprocessScriptLauncher
from hpu_core.distributed.signals import SharedSignals

if TYPE_CHECKING:
    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, Precision
    from lightning.fabric.utilities.types import _DEVICE, _PATH
    from torch import Tensor
    from torch.nn import Module


class FabricHPUStrategy(HPUStrategyMixin, FabricStrategy):
    """Base of Fabric's strategies on HPU; list it before Lightning's strategy.

    In lazy mode, the graph is launched after the backward pass and after the optimizer step, as with the Trainer.
    """

    all_reduce = HPUStrategyMixin.reduce_over_ranks  # Lightning's name for it here.

    _script_launcher = FabricHPUSubprocessScriptLauncher
    _shared: SharedSignals | None = None
    _is_stopped = False

    def _set_world_ranks(self) -> None:
        # Fabric calls it where it is there; Lightning's strategy of one device has no ranks.
        set_ranks = getattr(super(), "_set_world_ranks", None)
        if set_ranks is not None and not self.process_groups.has_rank:
            _rendezvous_env.clear()
            set_ranks()

    _set_rank = _set_world_ranks

    def prepare_device(self) -> None:
        """Select the device as HPUStrategyMixin does, and take part in steps; Fabric may train before `launch`."""
        super().prepare_device()
        # Fabric's modules enter it around their forward pass, for which strategies have no hook.
        self.precision.forward_context = partial(self._forward_step, self.precision)  # type: ignore[method-assign] # This plugin's alone.
        if _lightning_2_0.applies_to(frameworks.current().version):
            _lightning_2_0.route_backward_through_strategy(self, self.precision)

    @contextmanager
    def _forward_step(self, precision: "Precision") -> Iterator[None]:
        """Run a forward pass as a part of a step; errors of programs for other devices end with what to write here."""
        name = "training step" if torch.is_grad_enabled() else "evaluation forward"
        with self.process_groups.step(name), explain_errors(), type(precision).forward_context(precision):
            yield

    def module_to_device(self, module: "Module") -> None:
        """Move a module to the device. Fabric may do so on a single device before it is launched."""
        self.prepare_device()
        with explain_errors():
            super().module_to_device(module)  # type: ignore[safe-super] # The annotated base is abstract; in each class Lightning's strategy follows, which has it.

    def module_init_context(self, empty_init: bool | None = None) -> AbstractContextManager[Any]:
        """Return Lightning's context that creates a module on the device, for `Fabric.init_module`."""
        self.prepare_device()
        return super().module_init_context(empty_init)

    def backward(self, tensor: "Tensor", module: "Module | None", *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of a loss, then launch the graph of the forward and backward pass (lazy mode)."""
        with self.process_groups.step("backward"), explain_errors():
            super().backward(tensor, module, *args, **kwargs)
            self._mark_step_if_lazy()

    def should_stop(self) -> bool:
        """Return whether all ranks stop here, because one received SIGTERM; all call this before they fetch a batch.

        From the first call on, SIGTERM does not end the process.
        """
        if self._shared is None:
            self._shared = agreement = SharedSignals(self.process_groups)
            signal.signal(signal.SIGTERM, lambda signum, _: agreement.received.add(signum))
        self._is_stopped |= signal.SIGTERM in self._shared.before_batch()
        return self._is_stopped

    def save_checkpoint(
        self,
        path: "_PATH",
        state: dict[str, Any],
        storage_options: Any | None = None,
        filter: "dict[str, Callable[[str, Any], bool]] | None" = None,  # noqa: A002 - Lightning's name.
    ) -> None:
        """Save a checkpoint.

        One that the ranks write together, a file or a folder, replaces `path` once it is complete on all of them.

        Raises:
            IsADirectoryError: One file cannot replace a folder that is not a checkpoint.
            TypeError: `storage_options` is set for a checkpoint that the ranks write together, or `filter`, which needs
                Lightning 2.1.
        """
        method = super().save_checkpoint
        options = supported_arguments(method, filter=filter)

        def save(path: "_PATH", state: dict[str, Any]) -> None:
            method(path, state, storage_options, **options)

        self._save(save, path, state, storage_options)

    def load_checkpoint(
        self, path: "_PATH", state: Any | None = None, strict: bool = True, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the states of the given objects.

        Returns:
            The rest of a checkpoint, a sharded one of any number of devices, except for DeepSpeed's.

        Raises:
            TypeError: `strict` is False, which needs Lightning 2.1, or `weights_only` is set, which needs 2.6.
            ValueError: It is a checkpoint of another strategy, or of DeepSpeed and another number of devices.
        """
        method: Callable[..., Any] = super().load_checkpoint
        options = supported_arguments(method, strict=strict, weights_only=weights_only)
        return self._load(partial(method, state=state), path, state, options)


class FabricSingleHPUStrategy(FabricHPUStrategy, FabricSingleDeviceStrategy):
    """Fabric strategy for training on one HPU, registered as "hpu_single".

    Args:
        device: "hpu" or "hpu:0". A process has one device, so other indices are invalid.
        accelerator: The accelerator, if it is not passed to Fabric.
        checkpoint_io: Plugin that writes and reads checkpoints; `HPUCheckpointIO` if None.
        precision: Fabric's precision plugin; 32-bit if None.

    Raises:
        ValueError: `device` is not an HPU, or has an index other than 0.
    """

    strategy_name = "hpu_single"

    def __init__(
        self,
        device: "_DEVICE" = "hpu",
        accelerator: "Accelerator | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision: "Precision | None" = None,
    ) -> None:
        super().__init__(validate_device(device), accelerator, checkpoint_io, precision)
