"""Callback that compiles the regions of a LightningModule."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hpu_compile import _torch
from hpu_compile._lightning import Callback, LightningModule, Trainer, rank_zero_info
from hpu_compile.compilation import Compilation
from hpu_compile.regions import find_regions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

    import torch

    from hpu_compile.regions import Regions
    from hpu_compile.report import CompileReport

__all__ = ["HPUCompile"]


@runtime_checkable
class _HasShapes(Protocol):
    """Batch sampler that knows its shapes, such as hpu-bucketing's."""

    def samples_of_shapes(self) -> Sized: ...


class HPUCompile(Callback):
    """Callback that compiles a model for Gaudi by regions, after the strategy has wrapped it.

    Regions are compiled in place and with static shapes, so names of parameters, checkpoints and hooks stay. The model
    is as before when the training or the evaluation ends. On other devices the callback does nothing.

    Args:
        regions: "blocks" for the repeated blocks (see `find_regions`), or names of modules, names of classes, and
            classes.
        shapes: Number of shapes of the inputs; None for that of the data loader's buckets, or 1. Each module may have
            so many graphs per mode and one more, for a last batch of another size. Further ones run without the
            compiler, with a `RecompileLimitWarning`.
        eager_steps: Number of first training steps without the compiler. The first one creates state, such as caches of
            positions, that a graph would assume to be absent. torch before 2.6 has none.
        fullgraph: Whether a graph break is an error.
        options: Options of `hpu_backend`.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        regions: Regions = "blocks",
        *,
        shapes: int | None = None,
        eager_steps: int = 1,
        fullgraph: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if shapes is not None and shapes < 1:
            raise ValueError(f"`shapes` must be a positive int, got {shapes!r}")
        if eager_steps < 0:
            raise ValueError(f"`eager_steps` must not be negative, got {eager_steps!r}")
        self._regions = regions
        self._shapes = shapes
        self._eager_steps = eager_steps
        self._options = {"fullgraph": fullgraph, **({"options": dict(options)} if options else {})}
        self._compilation: Compilation | None = None
        self._last_report: CompileReport | None = None
        self._eager = contextlib.ExitStack()
        self._evaluating = False
        self._is_fsdp = False
        self._steps = 0

    @property
    def report(self) -> CompileReport | None:
        """What was compiled by this training or evaluation, or by the last one."""
        return self._last_report if self._compilation is None else self._compilation.report

    def explain_recompilation(self) -> str | None:
        """Return why a graph was compiled again in this training step; None if none was.

        hpu-bucketing's RecompilationMonitor adds it to its reports.
        """
        if self._compilation is None:
            return None
        regions = self._compilation.report.regions
        found = [each for region in regions for each in region.recompilations if each.step == self._compilation.step]
        return str(found[-1]) if found else None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compile the regions; the strategy has wrapped the module.

        Raises:
            RuntimeError: The bridge is in lazy mode, torch is older than 2.5, or the strategy is ZeRO-3.
            ValueError: The model has no such region.
        """
        self._start(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Undo the compilation, and tell what was compiled."""
        del trainer, pl_module
        self._finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Undo the compilation, because the model may be used again."""
        del trainer, pl_module, exception
        self._finish()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Run the first steps without the compiler."""
        del batch
        if self._compilation is None:
            return
        self._compilation.step = self._steps
        if self._is_fsdp and batch_idx % trainer.accumulate_grad_batches == 0:
            # Lightning frees them after the forward pass. While dynamo traces one, a gradient has the size of this
            # rank's part, and its parameter that of all, which torch refuses.
            for parameter in pl_module.parameters():
                parameter.grad = None
        if self._steps < self._eager_steps:
            stance = _torch.force_eager()
            if stance is not None:
                self._eager.enter_context(stance)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step."""
        del trainer, pl_module, outputs, batch, batch_idx
        self._eager.close()
        self._steps += 1

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compile the regions for an evaluation outside of a training."""
        if self._compilation is None:
            self._start(trainer, pl_module)
            self._evaluating = self._compilation is not None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Undo the compilation for an evaluation outside of a training."""
        del trainer, pl_module
        if self._evaluating:
            self._finish()

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    def _start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if pl_module.device.type != "hpu":
            return
        self._steps = 0
        model: Any = trainer.strategy.model
        self._is_fsdp = pl_module.automatic_optimization and _is_fsdp(model)
        if self._is_fsdp and trainer.accumulate_grad_batches > 1:
            raise RuntimeError(
                "torch.compile does not support FSDP with gradients of earlier batches, whose sizes are those of a "
                "rank's part: pass `accumulate_grad_batches=1`, or use FSDP2 (strategy='hpu_model_parallel')"
            )
        self._compilation = Compilation(
            find_regions(pl_module, self._regions),
            shapes=lambda: self._shapes or _count_shapes(trainer),
            options=self._options,
        )
        self._compilation.start()

    def _finish(self) -> None:
        if self._compilation is None:
            return
        self._eager.close()
        self._last_report = self._compilation.report
        self._compilation.restore()
        self._compilation = None
        self._evaluating = False
        rank_zero_info(str(self._last_report))


def _count_shapes(trainer: Trainer) -> int:
    """Return the number of shapes of the training data's buckets, 1 if it has none."""
    sampler = getattr(trainer.train_dataloader, "batch_sampler", None)
    return len(sampler.samples_of_shapes()) if isinstance(sampler, _HasShapes) else 1


def _is_fsdp(module: torch.nn.Module) -> bool:
    """Return whether a model, or a part of it, is wrapped by FullyShardedDataParallel."""
    return any(type(part).__name__ == "FullyShardedDataParallel" for part in module.modules())
