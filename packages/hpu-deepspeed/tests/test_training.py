"""Lightning's loops with DeepSpeed on two simulated cards; each fixture is one visit to the ranks."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version

from hpu_core import collectives, frameworks
from hpu_deepspeed import HPUDeepSpeedStrategy

from .conftest import OnRanks
from .modules import (
    HAS_NVME,
    Classifier,
    Steady,
    loader,
    loss_of,
    numbers,
    on_nvme,
    perceptron,
    trainer,
    whatever_its_size,
)

BATCHES = 7
EPOCHS = 2
ACCUMULATED = 3
CLIP = 0.05
# Of each epoch: two of three batches, and one of one.
STEPS = 3 * EPOCHS

_callbacks = frameworks.current().pytorch("callbacks")
_Callback: Any = _callbacks.Callback


class Rates(_Callback):  # type: ignore[misc] # The class depends on what is installed.
    """Notes the learning rate that each batch is trained with, and how many steps there have been."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.steps: list[int] = []

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        self.steps.append(trainer.global_step)

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def _plain() -> dict[str, Any]:
    """Train by hand: gradients of up to three batches, averaged over the ranks and clipped, are a step."""
    net = perceptron().to("hpu")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=8)
    losses: list[torch.Tensor] = []
    rates: list[float] = []
    steps: list[int] = []
    for _ in range(EPOCHS):
        for index, batch in enumerate(loader(dist.get_rank(), 2, BATCHES)):
            rates.append(float(scheduler.get_last_lr()[0]))
            loss = loss_of(net, tuple(part.to("hpu") for part in batch))
            losses.append(collectives.all_reduce(loss.detach().clone(), None, "mean"))
            (loss / ACCUMULATED).backward()
            if (index + 1) % ACCUMULATED == 0 or index + 1 == BATCHES:
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    collectives.all_reduce(parameter.grad, None, "mean")
                torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
            steps.append((index + 1) // ACCUMULATED + (index + 1 == BATCHES) + (0 if len(steps) < BATCHES else 3))
    return {"losses": numbers(losses), "rates": rates, "steps": steps}


def _with_deepspeed(**options: Any) -> dict[str, Any]:
    module, rates = Steady(), Rates()
    run = trainer(
        HPUDeepSpeedStrategy(**options),
        accumulate_grad_batches=ACCUMULATED,
        callbacks=[rates],
        gradient_clip_val=CLIP,
        max_epochs=EPOCHS,
    )
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    expected = run.estimated_stepping_batches
    return {"losses": numbers(module.losses), "rates": rates.rates, "steps": rates.steps, "expected": expected}


def _accumulations(folder: str) -> dict[str, dict[str, Any]]:
    results = {str(stage): _with_deepspeed(stage=stage) for stage in range(4)}
    results["offload"] = _with_deepspeed(stage=3, offload_optimizer=True, offload_parameters=True)
    if HAS_NVME:
        with whatever_its_size():
            results["nvme"] = _with_deepspeed(**on_nvme(folder))
    results["plain"] = _plain()
    return results


@pytest.fixture(scope="module")
def accumulations(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What came of training with accumulation, clipping and a scheduler, by stage."""
    first, _ = on_ranks(_accumulations, str(tmp_path_factory.mktemp("disk")))
    return dict(first)


_STAGES = ["0", "1", "2", "3", "offload", *(["nvme"] if HAS_NVME else [])]


@pytest.mark.parametrize("stage", _STAGES)
def test_gradients_are_scaled_and_clipped_once(stage: str, accumulations: dict[str, dict[str, Any]]) -> None:
    """With an optimizer whose steps are as long as the gradient, all losses are those of a training by hand."""
    assert accumulations[stage]["losses"] == pytest.approx(accumulations["plain"]["losses"], abs=1e-5)


@pytest.mark.parametrize("stage", _STAGES)
def test_the_scheduler_moves_with_the_steps(stage: str, accumulations: dict[str, dict[str, Any]]) -> None:
    """The learning rate falls after each step, and not after each batch."""
    assert accumulations[stage]["rates"] == pytest.approx(accumulations["plain"]["rates"])


@pytest.mark.parametrize("stage", _STAGES)
def test_the_last_batches_of_an_epoch_are_a_step(stage: str, accumulations: dict[str, dict[str, Any]]) -> None:
    """Though they are fewer than `accumulate_grad_batches`; Lightning counts on it."""
    assert accumulations[stage]["steps"] == accumulations["plain"]["steps"]
    assert accumulations[stage]["steps"][-1] == accumulations[stage]["expected"] == STEPS


class Erratic(Classifier):
    """Logs a loss that does not fall, so that the training is stopped."""

    def validation_step(self, batch: tuple[torch.Tensor, ...], index: int) -> None:
        loss = loss_of(self.net, batch) * 0 + self.global_rank + 1
        self.log("loss", loss, sync_dist=True)


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
    found["predicted"] = [tuple(scores.shape) for scores in run.predict(module, data)]
    stopping = _callbacks.EarlyStopping("loss", patience=2)
    run = trainer(HPUDeepSpeedStrategy(stage=2), callbacks=[stopping], max_epochs=9)
    run.fit(Erratic(), data, data)
    found["epochs"], found["logged"] = run.current_epoch, float(run.callback_metrics["loss"])
    found["device"] = str(run.strategy.root_device)
    found["deterministic"] = torch.are_deterministic_algorithms_enabled()
    found["gathered"] = run.strategy.all_gather(torch.tensor([run.global_rank], device="hpu")).tolist()
    found["greatest"] = int(run.strategy.reduce(torch.tensor(2**24 + run.global_rank, device="hpu"), reduce_op="max"))
    found["told"] = run.strategy.broadcast(f"from {run.global_rank}")
    return found


@pytest.fixture(scope="module")
def loops(on_ranks: OnRanks) -> list[dict[str, Any]]:
    """What the loops gave on each rank."""
    return on_ranks(_loops)


def test_metrics_are_the_same_wherever_they_are_measured(loops: list[dict[str, Any]]) -> None:
    """Validation after fitting, by itself and as a test sees the trained weights on both ranks."""
    first, second = ({found[name] for name in ("fitted", "validated", "tested")} for found in loops)

    assert first == second
    assert max(first) == pytest.approx(min(first), abs=1e-6)


def test_predictions_come_by_batch(loops: list[dict[str, Any]]) -> None:
    """Each rank predicts its share."""
    assert [found["predicted"] for found in loops] == [[(8, 10)] * BATCHES] * 2


def test_early_stopping_stops_all_ranks(loops: list[dict[str, Any]]) -> None:
    """A loss that does not fall for two epochs ends the training in the third, averaged over ranks."""
    assert [(found["epochs"], found["logged"]) for found in loops] == [(3, 1.5)] * 2


def test_the_device_has_no_index(loops: list[dict[str, Any]]) -> None:
    """Neither for DeepSpeed nor for anyone else."""
    assert [found["device"] for found in loops] == ["hpu"] * 2


def test_torch_is_not_switched_to_deterministic_algorithms(loops: list[dict[str, Any]]) -> None:
    """DeepSpeed's accelerator does that when it is made, to the whole process."""
    assert [found["deterministic"] for found in loops] == [False] * 2


def test_collectives_are_exact(loops: list[dict[str, Any]]) -> None:
    """Integers beyond float32's come out right, and objects travel."""
    assert [(found["gathered"], found["greatest"], found["told"]) for found in loops] == [
        ([[0], [1]], 2**24 + 1, "from 0")
    ] * 2


class Sharded(Classifier):
    """Makes its layers where Lightning has them partitioned at once."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Identity()
        self.whole = 0

    def configure_model(self) -> None:
        if isinstance(self.net, torch.nn.Identity):
            self.net = perceptron()
            self.whole = sum(parameter.numel() for parameter in self.net.parameters())


def _sharded() -> dict[str, Any]:
    """Train a module that was never whole on a card, and one that was."""
    results: dict[str, Any] = {}
    for name, module in {"sharded": Sharded(), "whole": Classifier()}.items():
        run = trainer(HPUDeepSpeedStrategy(stage=3))
        run.fit(module, loader(run.global_rank, 2, BATCHES))
        results[name] = numbers(module.losses)
        results[f"elements of {name}"] = getattr(module, "whole", None)
    return results


@pytest.mark.skipif(frameworks.current().version < Version("2.1.dev0"), reason="Lightning 2.0 has no configure_model")
def test_a_module_can_be_partitioned_as_it_is_made(on_ranks: OnRanks) -> None:
    """With stage 3, layers made in `configure_model` are never whole on a card, and train the same."""
    first, _ = on_ranks(_sharded)

    assert first["elements of sharded"] == 0
    assert first["sharded"] == pytest.approx(first["whole"], abs=1e-5)


def _lazily() -> tuple[list[float], list[int]]:
    import hpu_sim

    class Counting(_Callback):  # type: ignore[misc] # As above.
        def on_train_batch_start(self, *args: Any) -> None:
            stats.append(hpu_sim.stats())

    stats: list[dict[str, int]] = []
    module = Classifier()
    run = trainer(HPUDeepSpeedStrategy(stage=2), callbacks=[Counting()])
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    return numbers(module.losses), [stat["recompilations"] for stat in stats]


def test_lazy_mode_gives_the_same(on_ranks: OnRanks) -> None:
    """The graphs of DeepSpeed's steps compute what its operations do one by one."""
    (lazy, recompilations), _ = on_ranks(_lazily, lazy=True)
    (eager, _), _ = on_ranks(_lazily)

    assert lazy == pytest.approx(eager, abs=1e-6)
    assert recompilations[-1] == recompilations[3]
