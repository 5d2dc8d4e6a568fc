"""Fabric's twin on two simulated cards."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hpu_core import HPUAccelerator, frameworks
from hpu_deepspeed import FabricHPUDeepSpeedStrategy, HPUDeepSpeedStrategy

from .conftest import OnRanks
from .modules import HAS_NVME, Classifier, loader, loss_of, numbers, on_nvme, perceptron, trainer, whatever_its_size

BATCHES = 6
HALF = 3


def _fabric(strategy: Any, **options: Any) -> Any:
    fabric = frameworks.current().fabric().Fabric(accelerator=HPUAccelerator(), devices=2, strategy=strategy, **options)
    fabric.launch()
    return fabric


def _train(fabric: Any, module: Any, optimizer: Any, batches: range) -> list[float]:
    losses = []
    for index, batch in enumerate(loader(fabric.global_rank, 2, BATCHES)):
        if index in batches:
            loss = loss_of(module, tuple(part.to(fabric.device) for part in batch))
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(fabric.all_reduce(loss.detach().clone()))
    return numbers(losses)


def _set_up(strategy: Any, **options: Any) -> tuple[Any, Any, Any]:
    fabric = _fabric(strategy, **options)
    net = perceptron()
    module, optimizer = fabric.setup(net, torch.optim.Adam(net.parameters(), lr=0.02))
    return fabric, module, optimizer


def _with_trainer(stage: int, precision: str) -> list[float]:
    module = Classifier()
    run = trainer(HPUDeepSpeedStrategy(stage=stage), precision=precision)
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    return numbers(module.losses)


def _evaluate(path: Path) -> float:
    """Return the loss of the next batch with weights that were saved, in a module that is not trained."""
    fabric = _fabric(FabricHPUDeepSpeedStrategy(stage=3))
    module = fabric.setup(perceptron())
    fabric.load(path, {"model": module})
    batch = list(loader(fabric.global_rank, 2, BATCHES))[HALF]
    with torch.no_grad():
        loss = loss_of(module, tuple(part.to(fabric.device) for part in batch))
    return float(fabric.all_reduce(loss))


def _all(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for stage in (2, 3):
        for precision in ("32-true", "bf16-mixed"):
            parts = _set_up(FabricHPUDeepSpeedStrategy(stage=stage), precision=precision)
            found[f"{stage} {precision}"] = _train(*parts, range(BATCHES))
            found[f"trainer {stage} {precision}"] = _with_trainer(stage, precision)
        path = Path(folder, f"{stage}.ckpt")
        fabric, module, optimizer = _set_up(FabricHPUDeepSpeedStrategy(stage=stage))
        _train(fabric, module, optimizer, range(HALF))
        fabric.save(path, {"model": module, "optimizer": optimizer, "seen": HALF})
        fabric, module, optimizer = _set_up("hpu_deepspeed_stage_2" if stage == 2 else "hpu_deepspeed_stage_3")
        state = {"model": module, "optimizer": optimizer, "seen": 0}
        fabric.load(path, state)
        found[f"resumed {stage}"] = _train(fabric, module, optimizer, range(state["seen"], BATCHES))
        found["strategy"] = type(fabric.strategy).__name__
    found["evaluated"] = _evaluate(path)
    if HAS_NVME:
        strategies = [FabricHPUDeepSpeedStrategy(**on_nvme(str(Path(folder).parent))) for _ in range(2)]
        with whatever_its_size():
            found["nvme"] = _train(*_set_up(strategies[0]), range(BATCHES))
            fabric, module, optimizer = _set_up(strategies[1])
            fabric.load(Path(folder, "3.ckpt"), {"model": module, "optimizer": optimizer})
            found["resumed nvme"] = _train(fabric, module, optimizer, range(HALF, BATCHES))
            # What it says is for the test to look at, in another process.
            with pytest.raises(NotImplementedError) as refused:
                fabric.load(Path(folder, "3.ckpt"), {"model": module})
        found["refused nvme"] = str(refused.value)
    found["gathered"] = fabric.all_gather(torch.tensor([fabric.global_rank], device="hpu")).tolist()
    found["device"], found["files"] = str(fabric.device), sorted(path.name for path in Path(folder).iterdir())
    try:
        FabricHPUDeepSpeedStrategy(stage=4)
    except ValueError as error:
        found["refused"] = str(error)
    return found


@pytest.fixture(scope="module")
def found(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the first rank found."""
    first, _ = on_ranks(_all, str(tmp_path_factory.mktemp("fabric")))
    return dict(first)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("stage", [2, 3])
def test_fabric_trains_like_the_trainer(stage: int, precision: str, found: dict[str, Any]) -> None:
    """The same steps give the same losses."""
    assert found[f"{stage} {precision}"] == pytest.approx(found[f"trainer {stage} {precision}"], abs=1e-6)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_saved_training_goes_on(stage: int, found: dict[str, Any]) -> None:
    """With what was loaded, and the strategy that has the name."""
    assert found[f"resumed {stage}"] == pytest.approx(found[f"{stage} 32-true"][HALF:], abs=1e-6)
    assert found["strategy"] == "FabricHPUDeepSpeedStrategy"


def test_weights_are_loaded_without_an_optimizer(found: dict[str, Any]) -> None:
    """In stage 3, where a module may not fit on a card to be evaluated either."""
    assert found["evaluated"] == pytest.approx(found["3 32-true"][HALF], abs=1e-6)


@pytest.mark.skipif(not HAS_NVME, reason="Requires: DeepSpeed 0.18")
def test_nvme_trains_and_goes_on_like_memory(found: dict[str, Any]) -> None:
    """From a checkpoint that was saved without it, too."""
    assert found["nvme"] == pytest.approx(found["3 32-true"], abs=1e-6)
    assert found["resumed nvme"] == pytest.approx(found["3 32-true"][HALF:], abs=1e-6)


@pytest.mark.skipif(not HAS_NVME, reason="Requires: DeepSpeed 0.18")
def test_nvme_takes_no_weights_alone(found: dict[str, Any]) -> None:
    """Which DeepSpeed looks for in memory."""
    assert "weights without the optimizer's state cannot be loaded" in found["refused nvme"]


def test_nothing_is_left_beside_the_checkpoints(found: dict[str, Any]) -> None:
    """As with the Trainer."""
    assert found["files"] == ["2.ckpt", "3.ckpt"]


def test_collectives_and_device(found: dict[str, Any]) -> None:
    """The device has no index, and gathered tensors come by rank."""
    assert (found["device"], found["gathered"]) == ("hpu", [[0], [1]])


def test_what_cannot_work_is_refused(found: dict[str, Any]) -> None:
    """By the same checks."""
    assert found["refused"] == "`stage` must be 0, 1, 2 or 3, got 4"
