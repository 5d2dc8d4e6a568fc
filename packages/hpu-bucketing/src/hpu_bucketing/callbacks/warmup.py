"""Callback that compiles all shapes before the first step."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from hpu_bucketing._compilations import compilation_count, raise_compile_limits
from hpu_bucketing._lightning import (
    Callback,
    LightningModule,
    Trainer,
    rank_zero_info,
    reset_epoch_logs,
    run_training_pass,
    without_effects,
)
from hpu_bucketing.callbacks._preserve import preserve_state
from hpu_bucketing.callbacks._shapes import tensor_shapes
from hpu_bucketing.loader import BucketDataLoader
from hpu_core import bridge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

__all__ = ["HPUWarmup", "WarmupRecord"]


@dataclass(frozen=True, slots=True)
class WarmupRecord:
    """Warm-up of one shape.

    Attributes:
        shape: Padded sizes of the bucket.
        seconds: Duration.
        compilations: Number of graphs compiled; None where nothing counts them.
    """

    shape: tuple[int, ...]
    seconds: float
    compilations: int | None


class HPUWarmup(Callback):
    """Callback that runs forward and backward once for each bucket before the first training step.

    The passes leave no trace: no optimizer step, and weights, gradients, buffers (such as those of BatchNorm), states
    of torchmetrics, random numbers, logs and other callbacks are as before. What else a `training_step` changes by
    itself is not restored. All ranks run the same shapes at the same time, the largest first, so
    that a model that does not fit fails at once. The largest runs twice: data parallelism rearranges its gradient
    buckets after the first backward pass.

    The optimizer's own graph does not depend on the shapes. It compiles in the first steps.

    On a CPU or CUDA it is useful for torch.compile, whose limits are raised to the number of buckets.

    Args:
        batches: Batches to run, each with its shape. None takes those of the Trainer's `BucketDataLoader`.
        compile_only: Whether to compile without executing, where the bridge can (PT_COMPILE_ONLY_MODE). The largest
            shape is executed nevertheless.
        progress_bar: Whether to show one on rank 0.

    Attributes:
        records: The warm-up of each shape, after it.
        tensor_shapes: Name and shape of each tensor of the batches.
    """

    def __init__(
        self,
        batches: Iterable[tuple[tuple[int, ...], Any]] | None = None,
        *,
        compile_only: bool = True,
        progress_bar: bool = True,
    ) -> None:
        self._batches = None if batches is None else list(batches)
        self._compile_only = compile_only
        self._progress_bar = progress_bar
        self.records: list[WarmupRecord] = []
        self.tensor_shapes: set[tuple[str, tuple[int, ...]]] = set()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Run all shapes.

        Raises:
            TypeError: The Trainer has no `BucketDataLoader`, and no batches were given.
            ValueError: The model has manual optimization, whose `training_step` would step the optimizer.
        """
        if not pl_module.automatic_optimization:
            raise ValueError(
                "HPUWarmup needs automatic optimization, because `training_step` steps the optimizer itself otherwise: "
                "leave the callback out"
            )
        batches = self._batches if self._batches is not None else list(_loader(trainer).warmup_batches())
        self.tensor_shapes = {shape for _, batch in batches for shape in tensor_shapes(batch)}
        if _is_compiled(pl_module):
            raise_compile_limits(len(batches))
        with without_effects(trainer), preserve_state(pl_module):
            self.records = list(self._run(trainer, batches))
        total = sum(record.seconds for record in self.records)
        for record in self.records:
            rank_zero_info(_describe(record))
        rank_zero_info(f"warm-up of {len(self.records)} shapes took {total:.1f} s{_simulated()}")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Launch work between epochs, such as the reset of metrics logged for an epoch, as a graph of its own.

        In lazy mode it would become part of the first batch's graph, which is then another one.
        """
        del pl_module
        if bridge.is_loaded():
            reset_epoch_logs(trainer)
            bridge.mark_step()

    def _run(self, trainer: Trainer, batches: list[tuple[tuple[int, ...], Any]]) -> Iterator[WarmupRecord]:
        shown = self._progress_bar and trainer.is_global_zero and trainer.progress_bar_callback is not None
        with Progress(disable=not shown, transient=True) as progress:
            for index, (shape, batch) in enumerate(progress.track(batches, description="warm-up")):
                start, before = time.monotonic(), compilation_count()
                if index == 0:
                    _passes(trainer, batch)
                is_executed = index == 0 or not self._compile_only or not bridge.is_loaded()
                with contextlib.nullcontext() if is_executed else bridge.compile_only():
                    _passes(trainer, batch)
                after = compilation_count()
                compilations = None if before is None or after is None else after - before
                yield WarmupRecord(tuple(shape), time.monotonic() - start, compilations)


def _passes(trainer: Trainer, batch: Any) -> None:
    """Run a batch once for each kind of pass that gradient accumulation has."""
    accumulated = trainer.accumulate_grad_batches
    strategy: Any = trainer.strategy
    # Indices of the first, another, and the last batch to accumulate.
    for batch_idx in sorted({0, min(1, accumulated - 1), accumulated - 1}):
        synchronized = batch_idx == accumulated - 1 or not hasattr(strategy, "block_backward_sync")
        with contextlib.nullcontext() if synchronized else strategy.block_backward_sync():
            run_training_pass(trainer, batch, batch_idx)
    for parameter in trainer.lightning_module.parameters():
        parameter.grad = None


def _loader(trainer: Trainer) -> BucketDataLoader[Any]:
    loader = trainer.train_dataloader
    if not isinstance(loader, BucketDataLoader):
        raise TypeError(
            f"the training data must come from one BucketDataLoader, got {type(loader).__name__}: use one, or give "
            "`batches` to HPUWarmup"
        )
    return loader


def _is_compiled(module: torch.nn.Module) -> bool:
    """Return whether torch.compile was used on a part of a model, or on its `forward`."""
    return "torch._dynamo" in sys.modules and any(
        hasattr(part, "_orig_mod")
        or getattr(part, "_compiled_call_impl", None) is not None
        or hasattr(vars(part).get("forward"), "_torchdynamo_orig_callable")
        or getattr(part, "_compiler_ctx", None) is not None
        for part in module.modules()
    )


def _describe(record: WarmupRecord) -> str:
    shape = " x ".join(map(str, record.shape))
    if not record.compilations:
        return f"warm-up of {shape}: {record.seconds:.1f} s{_simulated()}"
    each = record.seconds / record.compilations
    return f"warm-up of {shape}: {record.seconds:.1f} s, {record.compilations} graphs, {each:.1f} s each{_simulated()}"


def _simulated() -> str:
    return " (simulated)" if bridge.is_simulated() else ""
