"""Callback that runs a module as HPU graphs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from hpu_bucketing._lightning import Callback, LightningModule, Trainer
from hpu_core import bridge

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HPUGraphs"]


class HPUGraphs(Callback):
    """Callback that replays HPU graphs of a module in lazy mode.

    Training captures forward and backward, one graph per set of input shapes (the bridge's ModuleCacher). Evaluation
    captures the forward pass (`wrap_in_hpu_graph`). Only the module's `forward` is replaced, so keys of checkpoints,
    the gradients' synchronization, clipping and the optimizer are as without graphs. On other devices it does nothing.
    Eager mode has no HPU graphs; `hpu_compile.HPUCompile` compiles there.

    Captured passes have rules: no collective, no operation on the CPU, and no control flow that depends on values
    inside the module. Every graph holds memory, so their number is bounded.

    Args:
        module: Name of the part of the model to run as graphs, such as "model" or "model.encoder"; "" for the model
            itself, whose `training_step` then has to call `self(...)`.
        max_graphs: Largest number of graphs: of buckets, and of other shapes such as that of a last batch.
        allow_unused_input: Whether parameters and inputs of the module may have no gradient.
        have_grad_accumulation: Whether gradients of several passes are added up: by `accumulate_grad_batches`, which
            None takes for the answer, or because the model zeroes them with `set_to_none=False`.
        disable_tensor_cache: Whether to free the tensors of a graph between its replays.
        clone_outputs: Whether to copy the module's outputs, which the next replay overwrites otherwise. Without it,
            neither keep nor log them.
    """

    def __init__(  # noqa: PLR0913 - options of the bridge's functions
        self,
        module: str = "",
        *,
        max_graphs: int = 10,
        allow_unused_input: bool = False,
        have_grad_accumulation: bool | None = None,
        disable_tensor_cache: bool = False,
        clone_outputs: bool = True,
    ) -> None:
        if max_graphs < 1:
            raise ValueError(f"`max_graphs` must be a positive int, got {max_graphs!r}")
        self._name = module
        self._options: dict[str, Any] = {"max_graphs": max_graphs, "disable_tensor_cache": disable_tensor_cache}
        self._allow_unused_input = allow_unused_input
        self._have_grad_accumulation = have_grad_accumulation
        self._clone_outputs = clone_outputs
        # Modules whose `forward` is replaced, and the instance attribute that each had before.
        self._replaced: list[tuple[torch.nn.Module, Callable[..., Any] | None]] = []
        self._evaluating = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace the module's `forward` for training.

        Raises:
            AttributeError: The model has no such part.
            RuntimeError: The bridge is in eager mode.
        """
        accumulates = self._have_grad_accumulation
        options = {
            "allow_unused_input": self._allow_unused_input,
            "have_grad_accumulation": trainer.accumulate_grad_batches > 1 if accumulates is None else accumulates,
        }
        self._run(pl_module, functools.partial(bridge.cache_hpu_graphs, **options))

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the module's `forward`."""
        del trainer, pl_module
        self._restore_all()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restore the module's `forward`, because the model may be used again."""
        del trainer, pl_module, exception
        self._restore_all()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace the module's `forward` for an evaluation."""
        del trainer
        self._evaluating = self._run(pl_module, bridge.wrap_in_hpu_graph)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the `forward` that the module had when the evaluation started, and free the graphs."""
        del trainer, pl_module
        if self._evaluating:
            self._restore()
            self._evaluating = False

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    def _run(self, pl_module: LightningModule, wrap: Callable[..., object]) -> bool:
        """Replace `forward` by HPU graphs, by a function of the bridge; return whether it was."""
        if pl_module.device.type != "hpu":
            return False
        if not bridge.is_lazy():
            raise RuntimeError(
                "HPUGraphs needs the bridge's lazy mode, and the bridge is in eager mode: set PT_HPU_LAZY_MODE=1, or "
                "use `hpu_compile.HPUCompile`"
            )
        module = self._replace(pl_module)
        wrap(module, **self._options)
        if self._clone_outputs:
            replay = module.forward

            def forward(*args: Any, **kwargs: Any) -> Any:
                return tree_map(_clone, replay(*args, **kwargs))

            module.forward = forward
        return True

    def _replace(self, pl_module: LightningModule) -> torch.nn.Module:
        """Return the module, whose original `forward` is in place again; the present one is kept for `_restore`."""
        try:
            module = pl_module.get_submodule(self._name)
        except AttributeError as error:
            names = [name for name, _ in pl_module.named_children()]
            raise AttributeError(
                f"`module` must be a part of the model, such as one of {names}, got {self._name!r}"
            ) from error
        self._replaced.append((module, vars(module).pop("forward", None)))
        # A `forward` that the program has set runs as a graph, also in an evaluation within a training.
        original = self._replaced[0][1]
        if original is not None:
            module.forward = original
        return module

    def _restore(self) -> None:
        module, forward = self._replaced.pop()
        # The bridge adds these functions to a module that it wraps.
        clear = vars(module).pop("clear_cache", None)
        vars(module).pop("clear_inputs", None)
        if clear is not None:
            clear()
        vars(module).pop("forward", None)
        if forward is not None:
            module.forward = forward

    def _restore_all(self) -> None:
        while self._replaced:
            self._restore()
        self._evaluating = False


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
