"""Tests of Lightning's loops on two simulated devices."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
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
def test_gradients_are_scaled_and_clipped_once(stage: str, accumulations: dict[str, dict[str, Any]]) -> None:
    """The losses with SGD, whose steps are proportional to the gradient, equal those of a plain loop."""
    assert accumulations[stage]["losses"] == pytest.approx(accumulations["reference"]["losses"], abs=1e-5)


@pytest.mark.parametrize("stage", _STAGES)
def test_scheduler_advances_per_optimizer_step(stage: str, accumulations: dict[str, dict[str, Any]]) -> None:
    """The learning rate does not change between accumulated batches."""
    assert accumulations[stage]["rates"] == pytest.approx(accumulations["reference"]["rates"])


@pytest.mark.parametrize("stage", _STAGES)
def test_last_batches_of_an_epoch_are_a_step(stage: str, accumulations: dict[str, dict[str, Any]]) -> None:
    """The step happens even with fewer than `accumulate_grad_batches` batches, as Lightning expects."""
    assert accumulations[stage]["steps"] == accumulations["reference"]["steps"]
    assert accumulations[stage]["steps"][-1] == accumulations[stage]["expected"] == STEPS


class ConstantLoss(Classifier):
    """Classifier that logs a constant validation loss, which triggers early stopping."""

    def validation_step(self, batch: tuple[torch.Tensor, ...], index: int) -> None:
        loss = compute_loss(self.net, batch) * 0 + self.global_rank + 1
        self.log("loss", loss, sync_dist=True)


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
    found["predicted"] = [tuple(scores.shape) for scores in run.predict(module, data)]
    stopping = _callbacks.EarlyStopping("loss", patience=2)
    run = trainer(HPUDeepSpeedStrategy(stage=2), callbacks=[stopping], max_epochs=9)
    run.fit(ConstantLoss(), data, data)
    found["epochs"], found["logged"] = run.current_epoch, float(run.callback_metrics["loss"])
    found["device"] = str(run.strategy.root_device)
    found["deterministic"] = torch.are_deterministic_algorithms_enabled()
    found["gathered"] = run.strategy.all_gather(torch.tensor([run.global_rank], device="hpu")).tolist()
    found["greatest"] = int(run.strategy.reduce(torch.tensor(2**24 + run.global_rank, device="hpu"), reduce_op="max"))
    found["broadcast"] = run.strategy.broadcast(f"from {run.global_rank}")
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


def test_each_rank_predicts_its_part_of_each_batch(loops: list[dict[str, Any]]) -> None:
    assert [found["predicted"] for found in loops] == [[(8, 10)] * BATCHES] * 2


def test_early_stopping_stops_all_ranks(loops: list[dict[str, Any]]) -> None:
    """Training stops in the third epoch, because the averaged loss has not improved for two."""
    assert [(found["epochs"], found["logged"]) for found in loops] == [(3, 1.5)] * 2


def test_root_device_is_that_of_tensors(loops: list[dict[str, Any]]) -> None:
    assert [found["device"] for found in loops] == ["hpu:0"] * 2


def test_device_of_the_module_is_that_of_its_tensors(loops: list[dict[str, Any]]) -> None:
    assert [found["same_device"] for found in loops] == [{True}] * 2


def test_deterministic_algorithms_stay_disabled(loops: list[dict[str, Any]]) -> None:
    """DeepSpeed's accelerator for Gaudi enables them on import."""
    assert [found["deterministic"] for found in loops] == [False] * 2


def test_collectives_are_exact(loops: list[dict[str, Any]]) -> None:
    """Integers larger than float32 can represent are reduced exactly, and objects are broadcast."""
    assert [(found["gathered"], found["greatest"], found["broadcast"]) for found in loops] == [
        ([[0], [1]], 2**24 + 1, "from 0")
    ] * 2


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


def _tests_around_fit(stage: int) -> list[float]:
    """Return the losses of tests of one module: after training, again, after more of it, and by another Trainer."""
    module = Classifier()
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
