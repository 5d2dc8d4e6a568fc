"""Lightning's own callbacks on a simulated card, where nothing of ours is imported."""

import json
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks

from .programs import output

_framework = frameworks.current()
_PYTORCH = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}[_framework.name]

pytestmark = [
    pytest.mark.skipif(_framework.version < Version("2.2"), reason="Requires: Lightning 2.2, which has all of these"),
    pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends"),
]

# Trains once with each callback, and prints what was logged and what became of the training.
_PROGRAM = f"""
import datetime, json, logging, warnings
warnings.simplefilter("ignore")
logging.disable()
import torch
from {_PYTORCH} import LightningModule, Trainer, callbacks
from {_PYTORCH}.loggers import Logger
from {_PYTORCH}.plugins.precision.precision import Precision

class Kept(Logger):
    name, version = "kept", 0
    def __init__(self):
        super().__init__()
        self.kept = {{}}
    def log_hyperparams(self, *args, **kwargs):
        pass
    def log_metrics(self, metrics, step=None):
        self.kept.update(metrics)

class Module(LightningModule):
    memory = 0
    def __init__(self):
        super().__init__()
        self.layer, self.batch_size, self.lr = torch.nn.Linear(4, 1), 2, 0.1
        self.flops_per_batch, self.sizes, self.steps = 10**9, [], 0
    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.randn(512, 4), self.batch_size)
    def training_step(self, batch, index):
        self.sizes.append(len(batch))
        torch.empty(len(batch) * self.memory, device=self.device)
        return self.layer(batch).square().mean()
    def optimizer_step(self, *args, **kwargs):
        self.steps += 1
        super().optimizer_step(*args, **kwargs)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)

class Bf16(Precision):
    compute_dtype = torch.bfloat16

def train(callback, memory=0, **options):
    # Not every random start has a learning rate that stands out.
    torch.manual_seed(0)
    logger, module = Kept(), Module()
    module.memory = memory
    options = {{"max_epochs": 2, "limit_train_batches": 4, "log_every_n_steps": 1, **options}}
    trainer = Trainer(accelerator="hpu", devices=1, callbacks=[callback], logger=logger, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, **options)
    trainer.fit(module)
    return {{
        "logged": logger.kept, "lr": module.lr, "sizes": sorted(set(module.sizes)), "batch_size": module.batch_size,
        "steps": module.steps, "on": trainer.strategy.root_device.type,
        "finite": bool(module.layer.weight.isfinite().all()),
    }}

per_second = dict(batch_size_fn=len, window_size=2)
print(json.dumps({{
    "DeviceStatsMonitor": train(callbacks.DeviceStatsMonitor()),
    "ThroughputMonitor": train(callbacks.ThroughputMonitor(**per_second), plugins=[Bf16()]),
    "ThroughputMonitor in 32 bit": train(callbacks.ThroughputMonitor(**per_second)),
    "LearningRateFinder": train(callbacks.LearningRateFinder(num_training_steps=20), limit_train_batches=30),
    "BatchSizeFinder": train(callbacks.BatchSizeFinder(max_trials=8), memory=1024**2),
    "StochasticWeightAveraging": train(callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1)),
    "GradientAccumulationScheduler": train(callbacks.GradientAccumulationScheduler({{0: 2, 1: 4}})),
    "Timer": train(callbacks.Timer(datetime.timedelta(minutes=5))),
}}))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of a training with each callback, on a card of 64 MiB."""
    lines = output(_PROGRAM, tmp_path_factory.mktemp("callbacks"), HPU_SIM_DEVICES="1", HPU_SIM_MEMORY="64MiB")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def test_callbacks_train_on_the_card(trained: dict[str, Any]) -> None:
    """With each of them, and weights that are numbers."""
    assert {(each["on"], each["finite"]) for each in trained.values()} == {("hpu", True)}


def test_device_stats_are_the_cards_memory(trained: dict[str, Any]) -> None:
    """Under the bridge's names."""
    logged = {name.rpartition("/")[2] for name in trained["DeviceStatsMonitor"]["logged"]}

    assert {"InUse", "Limit", "MaxInUse"} <= logged


def test_throughput_is_compared_with_the_cards_peak(trained: dict[str, Any]) -> None:
    """In the type that the precision plugin computes in."""
    logged = trained["ThroughputMonitor"]["logged"]

    assert logged["train/device/mfu"] == pytest.approx(logged["train/device/flops_per_sec"] / 432e12, rel=1e-6)


def test_throughput_is_compared_with_no_unknown_peak(trained: dict[str, Any]) -> None:
    """The vendor has published none for float32."""
    logged = trained["ThroughputMonitor in 32 bit"]["logged"]

    assert "train/device/flops_per_sec" in logged
    assert "train/device/mfu" not in logged


def test_a_learning_rate_is_found(trained: dict[str, Any]) -> None:
    """And taken over."""
    assert trained["LearningRateFinder"]["lr"] != 0.1


def test_the_largest_batch_size_is_found(trained: dict[str, Any]) -> None:
    """It grows until the card's memory is full, which does not end the training: 16 rows of 4 MiB fill it."""
    assert trained["BatchSizeFinder"]["batch_size"] == 8


def test_gradients_are_accumulated_by_schedule(trained: dict[str, Any]) -> None:
    """Two steps of two batches in the first epoch, one of four in the second."""
    assert trained["GradientAccumulationScheduler"]["steps"] == 3
