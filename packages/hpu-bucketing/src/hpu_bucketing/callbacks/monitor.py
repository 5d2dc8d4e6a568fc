"""Callback that reports compilations after the warm-up."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from hpu_bucketing._compilations import compilation_count
from hpu_bucketing._lightning import Callback, LightningModule, Trainer
from hpu_bucketing.callbacks._shapes import tensor_shapes
from hpu_bucketing.callbacks.warmup import HPUWarmup
from hpu_bucketing.loader import BucketDataLoader
from hpu_core import bridge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_bucketing.plan.bucket_plan import BucketPlan

__all__ = ["RecompilationError", "RecompilationMonitor", "RecompilationWarning"]


@runtime_checkable
class _ExplainsRecompilations(Protocol):
    """Callback that knows why torch.compile has compiled a graph again, such as hpu-compile's HPUCompile."""

    def explain_recompilation(self) -> str | None: ...


class RecompilationWarning(UserWarning):
    """A graph was compiled after the warm-up."""


class RecompilationError(RuntimeError):
    """A graph was compiled after the warm-up."""


class RecompilationMonitor(Callback):
    """Callback that warns about compilations after the warm-up, and logs what padding costs.

    Compilations are those that the bridge counts, or torch.compile. Where nothing compiles, such as on a CPU, a batch
    with a new shape is reported, because a card would compile it. Without an `HPUWarmup`, the first batch of each
    bucket of a `BucketDataLoader` may compile.

    Loggers get `bucketing/compilations` (so far), and of a `BucketDataLoader` also `bucketing/padding_share` and
    `bucketing/tokens_per_second` (of this rank, without padding) since the last row. No value is read from the device.

    Args:
        action: "warn", or "error" to end the training.
        grace_steps: Number of first optimizer steps in whose batches graphs may compile, since those of the optimizer
            do. With gradient accumulation, several batches are one step.

    Attributes:
        violations: Text of each report.
    """

    def __init__(self, action: Literal["warn", "error"] = "warn", *, grace_steps: int = 2) -> None:
        if action not in {"warn", "error"}:
            raise ValueError(f"`action` must be 'warn' or 'error', got {action!r}")
        self._action = action
        self._grace_steps = grace_steps
        self.violations: list[str] = []
        self._seen: set[tuple[Any, ...]] = set()
        self._batches = self._optimizer_steps = self._global_step = 0
        self._count: int | None = None
        self._may_add_buckets = True
        self._start_row()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a training."""
        del pl_module
        self._seen, self._batches, self._optimizer_steps = set(), 0, 0
        self._may_add_buckets = not _warmups(trainer)
        self._start_row()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Note the number of compilations before a step."""
        del pl_module, batch, batch_idx
        if self._batches == 0:
            # Only now, because the warm-up may come after this callback.
            self._seen = {shape for warmup in _warmups(trainer) for shape in warmup.tensor_shapes}
        self._count = compilation_count()
        self._global_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report compilations of a step.

        Raises:
            RecompilationError: A graph was compiled, and `action` is "error".
        """
        del pl_module, outputs
        loader = trainer.train_dataloader
        info = loader.last_batch if isinstance(loader, BucketDataLoader) else None
        plan = loader.batch_sampler.plan if isinstance(loader, BucketDataLoader) and info is not None else None  # type: ignore[union-attr]
        new = [(name, shape) for name, shape in tensor_shapes(batch) if (name, shape) not in self._seen]
        after = compilation_count()
        compiled = len(new) > 0 if after is None or self._count is None else after > self._count
        expected = self._optimizer_steps < self._grace_steps or (
            # The first batch of a bucket: a size after that of the batch is the plan's.
            self._may_add_buckets
            and plan is not None
            and any(size in _sizes(plan) for _, shape in new for size in shape[1:])
        )
        self._seen.update(new)
        self._batches += 1
        # Several optimizers of a module step in one batch.
        self._optimizer_steps += trainer.global_step != self._global_step
        if info is not None:
            self._tokens += info.tokens
            self._padded_tokens += info.padded_tokens
        if compiled and not expected:
            text = _describe(trainer, batch_idx, new, plan, counted=after is not None)
            self._report("; torch.compile: ".join([text, *_explanations(trainer)]))
        if trainer.loggers and self._batches % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined] # an attribute in all versions
            for logger in trainer.loggers:
                logger.log_metrics(self._metrics(after), step=trainer.global_step)
            self._start_row()

    def _report(self, text: str) -> None:
        self.violations.append(text)
        if self._action == "error":
            raise RecompilationError(text)
        warnings.warn(text, RecompilationWarning, stacklevel=2)

    def _start_row(self) -> None:
        self._tokens = self._padded_tokens = 0
        self._row_start = time.monotonic()

    def _metrics(self, compilations: int | None) -> dict[str, float]:
        metrics: dict[str, float] = {} if compilations is None else {"bucketing/compilations": compilations}
        if self._padded_tokens:
            seconds = time.monotonic() - self._row_start
            metrics["bucketing/padding_share"] = 1 - self._tokens / self._padded_tokens
            metrics["bucketing/tokens_per_second"] = self._tokens / seconds if seconds else 0.0
        return metrics


def _warmups(trainer: Trainer) -> list[HPUWarmup]:
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined] # an attribute in all versions
    return [callback for callback in callbacks if isinstance(callback, HPUWarmup)]


def _explanations(trainer: Trainer) -> list[str]:
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined] # an attribute in all versions
    texts = [each.explain_recompilation() for each in callbacks if isinstance(each, _ExplainsRecompilations)]
    return [text for text in texts if text]


def _sizes(plan: BucketPlan) -> list[int]:
    return sorted({limit for dimension in plan.dimensions for limit in dimension})


def _describe(
    trainer: Trainer,
    batch_idx: int,
    new: Sequence[tuple[str, tuple[int, ...]]],
    plan: BucketPlan | None,
    *,
    counted: bool,
) -> str:
    rank = f"rank {trainer.global_rank}: " if trainer.world_size > 1 else ""
    simulated = " (simulated)" if bridge.is_simulated() else ""
    what = f"a graph was compiled after the warm-up{simulated}" if counted else "a card would compile a graph"
    place = f"{rank}{what} in batch {batch_idx} of epoch {trainer.current_epoch}"
    if not new and batch_idx == 0:
        return (
            f"{place}, though no tensor of the batch has a new shape: work between epochs, such as metrics that are "
            "logged for an epoch, became part of the first graph. HPUWarmup launches it before the first batch"
        )
    if not new:
        return (
            f"{place}, though no tensor of the batch has a new shape: the model has an operation whose result depends "
            "on data, or a Python number that changes. The report of `hpu-sim run --report` names its line"
        )
    name, shape = new[0]
    return f"{place}: `{name}` has the new shape {shape}{_nearest(shape, plan)}"


def _nearest(shape: tuple[int, ...], plan: BucketPlan | None) -> str:
    if plan is None:
        return "; pad to a few sizes, with a BucketDataLoader and a BucketCollate"
    limits = _sizes(plan)
    sizes = [size for size in shape[1:] if size not in limits]
    if not sizes:
        return "; the number of samples is another one, so leave the last batch out (`drop_last`)"
    nearest = next((limit for limit in limits if limit >= sizes[0]), limits[-1])
    return f"; the nearest bucket is {nearest}: pad to it with a BucketCollate of the plan"
