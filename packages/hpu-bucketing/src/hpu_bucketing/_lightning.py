"""Names of Lightning that hpu-bucketing builds on, private ones included, from the framework that hpu-core selects.

Importing this module imports that framework. Type checkers see `lightning`; the sources of `pytorch_lightning` are
generated from the same ones.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightning.pytorch import LightningDataModule, LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers.logger import DummyLogger
    from lightning.pytorch.utilities import rank_zero_info
    from lightning.pytorch.utilities.seed import isolate_rng
else:
    from hpu_core import frameworks

    _framework = frameworks.current()
    Callback = _framework.pytorch("callbacks").Callback
    DummyLogger = _framework.pytorch("loggers.logger").DummyLogger
    LightningDataModule = _framework.pytorch().LightningDataModule
    LightningModule = _framework.pytorch().LightningModule
    Trainer = _framework.pytorch().Trainer
    isolate_rng = _framework.pytorch("utilities.seed").isolate_rng
    rank_zero_info = _framework.pytorch("utilities").rank_zero_info


def run_training_pass(trainer: Trainer, batch: Any, batch_idx: int) -> None:
    """Run `training_step` and the backward pass as the training loop does, without the optimizer's step.

    The loop's own closure runs them: in lazy mode, a graph with one operation more or less would be another recipe.
    The batch is on the host; an index that is a multiple of `accumulate_grad_batches` begins with zeroed gradients.
    """
    module: Any = trainer.lightning_module
    epoch_loop: Any = trainer.fit_loop.epoch_loop
    precision: Any = trainer.precision_plugin
    # Lightning 2.0 and 2.1 have no conversion of inputs in the loop.
    if hasattr(precision, "convert_input"):
        batch = precision.convert_input(batch)
    batch = module._on_before_batch_transfer(batch, dataloader_idx=0)  # noqa: SLF001 - as the loop
    batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
    # Mean metrics are weighted by the size of the batch.
    results: Any = trainer._results  # noqa: SLF001 - has no public name
    if results is not None:
        results.batch = batch
    optimization = epoch_loop.automatic_optimization
    make_closure = optimization._make_closure  # noqa: SLF001 - the loop's own
    arguments = {
        "kwargs": epoch_loop._build_kwargs(OrderedDict(), batch, batch_idx),  # noqa: SLF001 - the loop's own
        "optimizer": trainer.optimizers[0],
        # Lightning 2.0 has it in `kwargs` only.
        "batch_idx": batch_idx,
    }
    names = inspect.signature(make_closure).parameters
    make_closure(**{name: value for name, value in arguments.items() if name in names}).closure()


def reset_epoch_logs(trainer: Trainer) -> None:
    """Reset the values that `training_step` logs for an epoch, before its first batch.

    Lightning resets them in the first batch's `self.log`. In lazy mode this makes another graph of that batch.
    """
    run: Any = trainer
    if run._results is not None:  # noqa: SLF001 - has no public name
        run._results.reset(metrics=False, fx="training_step")  # noqa: SLF001 - as above
        # Lightning resets them if this is another hook than the one that has logged before.
        run._logger_connector._current_fx = "training_step"  # noqa: SLF001 - as above


@contextlib.contextmanager
def without_effects(trainer: Trainer) -> Iterator[None]:
    """Return a context in which passes have no effect on callbacks, loggers, logged metrics and progress."""
    # Any, because type checkers do not know all of these names; each is in Lightning 2.0 to 2.6.
    run: Any = trainer
    module: Any = trainer.lightning_module
    optimization = run.fit_loop.epoch_loop.automatic_optimization
    callbacks, loggers, progress = run.callbacks, run.loggers, copy.deepcopy(optimization.optim_progress)
    hook = module._current_fx_name  # noqa: SLF001 - what `self.log` checks against the hooks that may log
    run.callbacks, run.loggers, module._current_fx_name = [], [DummyLogger()], "training_step"  # noqa: SLF001 - see above
    try:
        yield
    finally:
        run.callbacks, run.loggers, optimization.optim_progress = callbacks, loggers, progress
        module._current_fx_name = hook  # noqa: SLF001 - see above
        results = run._results  # noqa: SLF001 - has no public name
        if results is not None:
            results.reset()
            results.batch = results.batch_size = None
