"""Tests of the warm-up on the CPU."""

import copy
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics

from hpu_bucketing import HPUWarmup
from hpu_core import frameworks

from ..modules import Embeddings, Tokens, loader, trainer  # noqa: TID252 - pytest gives tests no absolute name

_pytorch: Any = frameworks.current().pytorch()


class Logging(Embeddings):
    """Model that logs, and updates a metric."""

    def __init__(self) -> None:
        super().__init__()
        self.metric = torchmetrics.MeanMetric()
        self.losses: list[float] = []

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.metric.update(loss.detach())
        self.log("metric", self.metric, on_step=True, on_epoch=True)
        self.losses.append(loss.item())
        return loss


class State(_pytorch.Callback):  # type: ignore[misc] # chosen at run time
    """Callback that saves the state before or after a warm-up, and notes its hooks."""

    def __init__(self) -> None:
        self.hooks: list[str] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.state = copy.deepcopy(pl_module.state_dict())
        self.random = (random.random(), np.random.random(), torch.rand(1).item())  # noqa: S311, NPY002 - global generators
        self.gradients = [parameter.grad for parameter in pl_module.parameters()]
        self.progress = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.state_dict()
        self.updates = pl_module.metric._update_count
        self.sum = pl_module.metric.mean_value.item()

    def on_before_zero_grad(self, *_: Any) -> None:
        self.hooks.append("zero_grad")


def _fit(folder: Path, *callbacks: Any, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator
    model = Logging()
    run = trainer(folder, callbacks=list(callbacks), **options)
    run.fit(model, loader())
    return model, run


def test_training_is_as_without_warm_up(tmp_path: Path) -> None:
    """Losses, metrics and weights are equal: the model has dropout and batch normalization."""
    plain, plain_run = _fit(tmp_path)
    warm, run = _fit(tmp_path, HPUWarmup())

    assert warm.losses[len(warm.losses) - len(plain.losses) :] == plain.losses
    assert run.logged_metrics == plain_run.logged_metrics
    for name, value in warm.state_dict().items():
        assert torch.equal(value, plain.state_dict()[name])


def test_state_is_restored(tmp_path: Path) -> None:
    before, after = State(), State()
    _fit(tmp_path, before, max_epochs=1)
    _fit(tmp_path, HPUWarmup(), after, max_epochs=1)

    assert after.random == before.random
    assert after.progress == before.progress
    assert after.gradients == [None] * len(after.gradients)
    assert (after.updates, after.sum) == (0, 0.0)
    assert len(after.hooks) == len(before.hooks)
    for name, value in after.state.items():
        assert torch.equal(value, before.state[name])


def test_every_shape_runs_the_largest_first_and_twice(tmp_path: Path) -> None:
    warmup = HPUWarmup()
    model, _ = _fit(tmp_path, warmup, max_epochs=1)

    assert [record.shape for record in warmup.records] == [(16,), (8,), (4,)]
    assert model.shapes[:4] == [(4, 16), (4, 16), (4, 8), (4, 4)]
    assert all(record.seconds > 0 for record in warmup.records)


@pytest.mark.parametrize(("accumulate", "passes"), [(1, 1), (2, 2), (3, 3), (8, 3)])
def test_each_kind_of_accumulated_pass_runs(accumulate: int, passes: int, tmp_path: Path) -> None:
    model, _ = _fit(tmp_path, HPUWarmup(), max_epochs=1, accumulate_grad_batches=accumulate)

    assert len(model.shapes) == 4 * passes + 10


def test_other_loader_is_an_error(tmp_path: Path) -> None:
    plain = torch.utils.data.DataLoader(Tokens(), batch_sampler=loader().batch_sampler, collate_fn=loader().collate_fn)

    with pytest.raises(
        TypeError, match="must come from one BucketDataLoader, got DataLoader: use one, or give `batches`"
    ):
        trainer(tmp_path, callbacks=[HPUWarmup()]).fit(Embeddings(), plain)


def test_manual_optimization_is_an_error(tmp_path: Path) -> None:
    model = Embeddings()
    model.automatic_optimization = False

    with pytest.raises(ValueError, match="HPUWarmup needs automatic optimization"):
        trainer(tmp_path, callbacks=[HPUWarmup()]).fit(model, loader())


def test_limits_of_torch_compile_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, torch.compile compiles no more than eight shapes of a function."""
    import torch._dynamo

    name = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    monkeypatch.setattr(torch._dynamo.config, name, 1)
    monkeypatch.setattr(HPUWarmup, "_run", lambda *_: [])
    model = Embeddings()
    compiled: Any = torch.compile(model.body.forward, backend="eager", dynamic=False)
    vars(model.body)["forward"] = compiled

    monkeypatch.setattr(model, "training_step", lambda *_: None)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer(tmp_path, callbacks=[HPUWarmup()], fast_dev_run=1).fit(model, loader())

    assert getattr(torch._dynamo.config, name) == 5
