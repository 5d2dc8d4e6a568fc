"""Test of DeepSpeed's CPU Adam, which DeepSpeed compiles on first use."""

import shutil
from typing import Any

import pytest

from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import Classifier, loader, trainer

BATCHES = 6
LR = 0.01
# Compiling takes half a minute on an idle machine.
_TIMEOUT = 900


class NoOptimizerClassifier(Classifier):
    """Classifier that leaves the optimizer to the configuration."""

    def configure_optimizers(self) -> Any:
        return None


def _train(module: Classifier, **options: Any) -> tuple[str, list[float]]:
    run = trainer(HPUDeepSpeedStrategy(**options))
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    return type(run.strategy.deepspeed_engine.basic_optimizer).__name__, to_floats(module.losses)


def _train_both() -> tuple[tuple[str, list[float]], tuple[str, list[float]]]:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    adam = {"type": "Adam", "params": {"lr": LR}}
    compiled = _train(NoOptimizerClassifier(), config={"optimizer": adam, "zero_optimization": zero})
    return compiled, _train(Classifier(lr=LR), stage=2, offload_optimizer=True)


@pytest.mark.slow
@pytest.mark.timeout(_TIMEOUT)
@pytest.mark.skipif(
    shutil.which("c++") is None or shutil.which("ninja") is None,
    reason="Requires: a C++ compiler and ninja, to compile DeepSpeed's Adam for the CPU",
)
def test_cpu_adam_has_the_losses_of_torchs_adam(on_ranks: OnRanks) -> None:
    ((name, losses), (_, expected)), _ = on_ranks(_train_both, seconds=_TIMEOUT)

    assert name == "DeepSpeedCPUAdam"
    assert losses == pytest.approx(expected, abs=1e-5)
