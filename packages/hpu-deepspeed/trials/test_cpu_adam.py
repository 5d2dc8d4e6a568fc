"""DeepSpeed's Adam for the host, which is compiled when a configuration first asks for it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_sim.testing import SharedRankPool

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.modules import Classifier, loader, numbers, trainer

BATCHES = 6
LR = 0.01
# The compiler takes half a minute on a quiet machine.
_PATIENCE = 900


class Unoptimized(Classifier):
    """Leaves the optimizer to the configuration."""

    def configure_optimizers(self) -> Any:
        return None


def _train(module: Classifier, **options: Any) -> tuple[str, list[float]]:
    run = trainer(HPUDeepSpeedStrategy(**options))
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    return type(run.strategy.deepspeed_engine.basic_optimizer).__name__, numbers(module.losses)


def _both() -> tuple[tuple[str, list[float]], tuple[str, list[float]]]:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    adam = {"type": "Adam", "params": {"lr": LR}}
    compiled = _train(Unoptimized(), config={"optimizer": adam, "zero_optimization": zero})
    return compiled, _train(Classifier(lr=LR), stage=2, offload_optimizer=True)


@pytest.mark.timeout(_PATIENCE)
@pytest.mark.skipif(
    shutil.which("c++") is None or shutil.which("ninja") is None,
    reason="Requires: a C++ compiler and ninja, to compile DeepSpeed's Adam for the CPU",
)
def test_deepspeeds_adam_for_the_host_is_torchs(tmp_path: Path) -> None:
    """Its losses are those of torch's Adam, step by step."""
    with SharedRankPool(lambda: tmp_path) as ranks:
        ((name, losses), (_, torchs)), _ = ranks.call(_both, seconds=_PATIENCE)

    assert name == "DeepSpeedCPUAdam"
    assert losses == pytest.approx(torchs, abs=1e-5)
