"""Tests of Lightning's loops on two simulated devices."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torchmetrics
from packaging.version import Version

from hpu_core import collectives, frameworks
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import (
    SUPPORTS_NVME,
    Classifier,
    SGDClassifier,
    compute_loss,
    loader,
    mlp,
    no_min_aio_size,
    nvme_options,
    trainer,
)

BATCHES = 7
EPOCHS = 2
ACCUMULATE_GRAD_BATCHES = 3
CLIP = 0.05
# Per epoch: two steps of three batches and one of a single batch.
STEPS = 3 * EPOCHS

_callbacks = frameworks.current().pytorch("callbacks")
_Callback: Any = _callbacks.Callback


class StepRecorder(_Callback):  # type: ignore[misc] # The class depends on the framework.
    """Callback that records the learning rate and the number of steps at each batch."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.steps: list[int] = []

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        self.steps.append(trainer.global_step)

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def _reference() -> dict[str, Any]:
    """Train with a plain loop that accumulates, averages and clips gradients."""
    net = mlp().to("hpu")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=8)
    losses: list[torch.Tensor] = []
    rates: list[float] = []
    steps: list[int] = []
    for _ in range(EPOCHS):
        for index, batch in enumerate(loader(dist.get_rank(), 2, BATCHES)):
            rates.append(float(scheduler.get_last_lr()[0]))
            loss = compute_loss(net, tuple(part.to("hpu") for part in batch))
            losses.append(collectives.all_reduce(loss.detach().clone(), None, "mean"))
            (loss / ACCUMULATE_GRAD_BATCHES).backward()
            if (index + 1) % ACCUMULATE_GRAD_BATCHES == 0 or index + 1 == BATCHES:
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    collectives.all_reduce(parameter.grad, None, "mean")
                torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
            steps.append(
                (index + 1) // ACCUMULATE_GRAD_BATCHES + (index + 1 == BATCHES) + (0 if len(steps) < BATCHES else 3)
            )
    return {"losses": to_floats(losses), "rates": rates, "steps": steps}


def _with_deepspeed(**options: Any) -> dict[str, Any]:
    module, recorder = SGDClassifier(), StepRecorder()
    run = trainer(
        HPUDeepSpeedStrategy(**options),
        accumulate_grad_batches=ACCUMULATE_GRAD_BATCHES,
        callbacks=[recorder],
        gradient_clip_val=CLIP,
        max_epochs=EPOCHS,
    )
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    expected = run.estimated_stepping_batches
    return {"losses": to_floats(module.losses), "rates": recorder.rates, "steps": recorder.steps, "expected": expected}


def _accumulations(folder: str) -> dict[str, dict[str, Any]]:
    results = {str(stage): _with_deepspeed(stage=stage) for stage in range(4)}
    results["offload"] = _with_deepspeed(stage=3, offload_optimizer=True, offload_parameters=True)
    if SUPPORTS_NVME:
        with no_min_aio_size():
            results["nvme"] = _with_deepspeed(**nvme_options(folder))
    results["reference"] = _reference()
    return results


@pytest.fixture(scope="module")
def accumulations(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the results of training with accumulation, clipping and a scheduler, by stage."""
    first, _ = on_ranks(_accumulations, str(tmp_path_factory.mktemp("disk")))
    return dict(first)


_STAGES = ["0", "1", "2", "3", "offload", *(["nvme"] if SUPPORTS_NVME else [])]


@pytest.mark.parametrize("stage", _STAGES)
def test_accumulation_is_that_of_a_plain_loop(stage: str, accumulations: dict[str, dict[str, Any]]) -> None:
    """Gradients are scaled and clipped once, and the last batches of an epoch are a step, also if they are fewer."""
    found, expected = accumulations[stage], accumulations["reference"]

    assert found["losses"] == pytest.approx(expected["losses"], abs=1e-5)
    assert found["rates"] == pytest.approx(expected["rates"])
    assert found["steps"] == expected["steps"]
    assert found["steps"][-1] == found["expected"] == STEPS


class DeviceComparison(Classifier):
    """Classifier that compares its device with those of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.comparisons: set[bool] = set()

    def on_train_batch_start(self, batch: tuple[torch.Tensor, ...], batch_idx: int) -> None:
        self.comparisons |= {tensor.device == self.device for tensor in (*batch, *self.parameters())}

    def predict_step(self, batch: tuple[torch.Tensor, ...], index: int) -> Any:
        return {tensor.device == self.device for tensor in (*batch, *self.parameters())}


def _loops() -> dict[str, Any]:
    """Fit, validate, test and predict with one module and one strategy."""
    found: dict[str, Any] = {}
    module = Classifier()
    run = trainer(HPUDeepSpeedStrategy(stage=2))
    data = loader(run.global_rank, 2, BATCHES)
    run.fit(module, data, data)
    found["fitted"] = float(run.callback_metrics["loss"])
    found["validated"] = run.validate(module, data)[0]["loss"]
    found["tested"] = run.test(module, data)[0]["loss"]
    found["same_device"] = run.predict(DeviceComparison(), data)[0]
    recorder = DeviceComparison()
    trainer(HPUDeepSpeedStrategy(stage=2)).fit(recorder, data)
    found["same_device"] |= recorder.comparisons
    found["device"] = str(run.strategy.root_device)
    found["deterministic"] = torch.are_deterministic_algorithms_enabled()
    return found


@pytest.fixture(scope="module")
def loops(on_ranks: OnRanks) -> list[dict[str, Any]]:
    """Return each rank's results."""
    return on_ranks(_loops)


def test_fit_validate_and_test_report_the_same_loss(loops: list[dict[str, Any]]) -> None:
    """Both ranks report the loss of the trained weights."""
    first, second = ({found[name] for name in ("fitted", "validated", "tested")} for found in loops)

    assert first == second
    assert max(first) == pytest.approx(min(first), abs=1e-6)


def test_deterministic_algorithms_stay_disabled(loops: list[dict[str, Any]]) -> None:
    """DeepSpeed's accelerator for Gaudi enables them on import."""
    assert [found["deterministic"] for found in loops] == [False] * 2


class ShardedClassifier(Classifier):
    """Classifier that creates its layers in `configure_model`, where DeepSpeed partitions them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Identity()
        self.full_elements = 0

    def configure_model(self) -> None:
        if isinstance(self.net, torch.nn.Identity):
            self.net = mlp()
            self.full_elements = sum(parameter.numel() for parameter in self.net.parameters())


def _sharded() -> dict[str, Any]:
    """Train a module that is partitioned on creation, and one that is not."""
    results: dict[str, Any] = {}
    for name, module in {"sharded": ShardedClassifier(), "full": Classifier()}.items():
        run = trainer(HPUDeepSpeedStrategy(stage=3))
        run.fit(module, loader(run.global_rank, 2, BATCHES))
        results[name] = to_floats(module.losses)
        results[f"elements of {name}"] = getattr(module, "full_elements", None)
    return results


@pytest.mark.skipif(frameworks.current().version < Version("2.1.dev0"), reason="Lightning 2.0 has no configure_model")
def test_configure_model_partitions_layers_on_creation(on_ranks: OnRanks) -> None:
    """The losses equal those of a module whose layers are partitioned later."""
    first, _ = on_ranks(_sharded)

    assert first["elements of sharded"] == 0
    assert first["sharded"] == pytest.approx(first["full"], abs=1e-5)


def _train_in_stage_3() -> tuple[bool, bool]:
    """Return whether `linear` is torch's in and after a training."""

    class Recorder(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            kept.append(torch.nn.functional.linear is before)
            return super().training_step(batch, batch_idx)

    before = torch.nn.functional.linear
    kept: list[bool] = []
    run = trainer(HPUDeepSpeedStrategy(stage=3))
    run.fit(Recorder(), loader(run.global_rank, 2, BATCHES))
    return kept[-1], torch.nn.functional.linear is before


def test_linear_layers_of_others_are_torchs_after_stage_3(on_ranks: OnRanks) -> None:
    assert on_ranks(_train_in_stage_3) == [(False, True)] * 2


def _train_and_count() -> tuple[list[float], list[int]]:
    import hpu_sim

    class StatsRecorder(_Callback):  # type: ignore[misc] # See above.
        def on_train_batch_start(self, *args: Any) -> None:
            stats.append(hpu_sim.stats())

    stats: list[dict[str, int]] = []
    module = Classifier()
    run = trainer(HPUDeepSpeedStrategy(stage=2), callbacks=[StatsRecorder()], devices=1)
    run.fit(module, loader(0, 1, BATCHES))
    return to_floats(module.losses), [stat["recompilations"] for stat in stats]


def test_lazy_mode_has_the_losses_of_eager_mode(on_ranks: OnRanks) -> None:
    """After the first steps, no graph is recompiled."""
    ((lazy, recompilations),) = on_ranks(_train_and_count, lazy=True, count=1)
    ((eager, _),) = on_ranks(_train_and_count, count=1)

    assert lazy == pytest.approx(eager, abs=1e-6)
    assert recompilations[-1] == recompilations[3]


class _Measured(Classifier):
    """Classifier with a metric and a buffer among its modules, which the end of each run moves to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10)
        self.net.register_buffer("scale", torch.ones(1))

    def test_step(self, batch: tuple[torch.Tensor, ...], index: int) -> None:
        """Log the loss, averaged over the ranks, and the accuracy."""
        scores = self.net(batch[0]) * self.net.scale
        self.accuracy(scores, batch[1])
        self.log("loss", torch.nn.functional.cross_entropy(scores, batch[1]), sync_dist=True)
        self.log("accuracy", self.accuracy)


def _tests_around_fit(stage: int) -> list[float]:
    """Return the losses of tests of one module: after training, again, after more of it, and by another Trainer."""
    module = _Measured()
    run = trainer(HPUDeepSpeedStrategy(stage=stage))
    data = loader(run.global_rank, 2, BATCHES)
    run.fit(module, data, data)
    losses = [run.test(module, data)[0]["loss"] for _ in range(2)]
    run.fit_loop.max_epochs += 1
    run.fit(module, data, data)
    other = trainer(HPUDeepSpeedStrategy(stage=stage))
    return [*losses, *(each.test(module, data)[0]["loss"] for each in (run, other))]


def test_partitioned_module_is_tested_as_a_whole_one(on_ranks: OnRanks) -> None:
    """What stage 3 has partitioned and Lightning moved to the host is gathered on the device again."""
    for partitioned, whole in zip(on_ranks(_tests_around_fit, 3), on_ranks(_tests_around_fit, 2), strict=True):
        assert partitioned == pytest.approx(whole, rel=1e-5)
        assert whole[0] == whole[1] != whole[2]
