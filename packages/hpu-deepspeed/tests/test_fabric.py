"""Tests of Fabric's strategy on two simulated devices."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hpu_core import HPUAccelerator, frameworks
from hpu_deepspeed import FabricHPUDeepSpeedStrategy, HPUDeepSpeedStrategy
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import (
    SUPPORTS_NVME,
    Classifier,
    compute_loss,
    loader,
    mlp,
    no_min_aio_size,
    nvme_options,
    trainer,
)

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
            loss = compute_loss(module, tuple(part.to(fabric.device) for part in batch))
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(fabric.all_reduce(loss.detach().clone()))
    return to_floats(losses)


def _set_up(strategy: Any, **options: Any) -> tuple[Any, Any, Any]:
    fabric = _fabric(strategy, **options)
    net = mlp()
    module, optimizer = fabric.setup(net, torch.optim.Adam(net.parameters(), lr=0.02))
    return fabric, module, optimizer


def _with_trainer(stage: int, precision: str) -> list[float]:
    module = Classifier()
    run = trainer(HPUDeepSpeedStrategy(stage=stage), precision=precision)
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    return to_floats(module.losses)


def _evaluate(path: Path) -> float:
    """Return the loss of the next batch with saved weights, in a module that was set up without an optimizer."""
    fabric = _fabric(FabricHPUDeepSpeedStrategy(stage=3))
    module = fabric.setup(mlp())
    fabric.load(path, {"model": module})
    batch = list(loader(fabric.global_rank, 2, BATCHES))[HALF]
    with torch.no_grad():
        loss = compute_loss(module, tuple(part.to(fabric.device) for part in batch))
    return float(fabric.all_reduce(loss))


def _run(folder: str) -> dict[str, Any]:
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
    if SUPPORTS_NVME:
        strategies = [FabricHPUDeepSpeedStrategy(**nvme_options(str(Path(folder).parent))) for _ in range(2)]
        with no_min_aio_size():
            found["nvme"] = _train(*_set_up(strategies[0]), range(BATCHES))
            fabric, module, optimizer = _set_up(strategies[1])
            fabric.load(Path(folder, "3.ckpt"), {"model": module, "optimizer": optimizer})
            found["resumed nvme"] = _train(fabric, module, optimizer, range(HALF, BATCHES))
    found["gathered"] = fabric.all_gather(torch.tensor([fabric.global_rank], device="hpu")).tolist()
    found["device"] = str(fabric.device)
    return found


@pytest.fixture(scope="module")
def found(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of rank 0."""
    first, _ = on_ranks(_run, str(tmp_path_factory.mktemp("fabric")))
    return dict(first)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("stage", [2, 3])
def test_losses_equal_the_trainers(stage: int, precision: str, found: dict[str, Any]) -> None:
    assert found[f"{stage} {precision}"] == pytest.approx(found[f"trainer {stage} {precision}"], abs=1e-6)


@pytest.mark.parametrize("stage", [2, 3])
def test_training_resumes_with_a_strategy_by_name(stage: int, found: dict[str, Any]) -> None:
    assert found[f"resumed {stage}"] == pytest.approx(found[f"{stage} 32-true"][HALF:], abs=1e-6)
    assert found["strategy"] == "FabricHPUDeepSpeedStrategy"


def test_weights_load_without_an_optimizer(found: dict[str, Any]) -> None:
    """Evaluation may need stage 3 as well, for a module that does not fit on one device."""
    assert found["evaluated"] == pytest.approx(found["3 32-true"][HALF], abs=1e-6)


@pytest.mark.skipif(not SUPPORTS_NVME, reason="Requires: DeepSpeed 0.18")
def test_nvme_trains_and_resumes_like_memory(found: dict[str, Any]) -> None:
    """The checkpoint was saved without NVMe."""
    assert found["nvme"] == pytest.approx(found["3 32-true"], abs=1e-6)
    assert found["resumed nvme"] == pytest.approx(found["3 32-true"][HALF:], abs=1e-6)
