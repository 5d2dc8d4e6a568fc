"""Tests of Lightning's callbacks on a simulated device, in a program that imports nothing but Lightning."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks

from .programs import PYTORCH, Server

_framework = frameworks.current()

pytestmark = [
    pytest.mark.skipif(_framework.version < Version("2.2"), reason="Requires: Lightning 2.2, which has all of these"),
    pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends"),
]

# Trains once with each callback, and prints the logged metrics and the outcome.
_PROGRAM = f"""
import datetime, json, logging, warnings
warnings.simplefilter("ignore")
logging.disable()
import torch
from {PYTORCH} import LightningModule, Trainer, callbacks
from {PYTORCH}.loggers import Logger

class InMemoryLogger(Logger):
    name, version = "memory", 0
    def __init__(self):
        super().__init__()
        self.metrics = {{}}
    def log_hyperparams(self, *args, **kwargs):
        pass
    def log_metrics(self, metrics, step=None):
        self.metrics.update(metrics)

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

def train(callback, memory=0, **options):
    # LearningRateFinder suggests none for some random weights.
    torch.manual_seed(0)
    logger, module = InMemoryLogger(), Module()
    module.memory = memory
    options = {{"max_epochs": 1, "limit_train_batches": 4, "log_every_n_steps": 1, **options}}
    trainer = Trainer(accelerator="hpu", devices=1, callbacks=[callback], logger=logger, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, **options)
    trainer.fit(module)
    return {{
        "logged": logger.metrics, "lr": module.lr, "sizes": sorted(set(module.sizes)), "batch_size": module.batch_size,
        "steps": module.steps, "on": trainer.strategy.root_device.type,
        "finite": bool(module.layer.weight.isfinite().all()),
    }}

print(json.dumps({{
    "DeviceStatsMonitor": train(callbacks.DeviceStatsMonitor()),
    "ThroughputMonitor": train(callbacks.ThroughputMonitor(batch_size_fn=len, window_size=2)),
    "LearningRateFinder": train(callbacks.LearningRateFinder(num_training_steps=20), limit_train_batches=30),
    "BatchSizeFinder": train(callbacks.BatchSizeFinder(max_trials=8), memory=1024**2),
    "StochasticWeightAveraging": train(callbacks.StochasticWeightAveraging(0.01, 1), max_epochs=2),
    "GradientAccumulationScheduler": train(callbacks.GradientAccumulationScheduler({{0: 2, 1: 4}}), max_epochs=2),
    "Timer": train(callbacks.Timer(datetime.timedelta(minutes=5))),
}}))
"""


@pytest.fixture(scope="module")
def trained(server: Callable[..., Server]) -> dict[str, Any]:
    """Outcome of training with each callback, on a device with 64 MiB."""
    outcomes: dict[str, Any] = json.loads(server(HPU_SIM_DEVICES="1").output(_PROGRAM)[-1])
    return outcomes


def test_callbacks_train_on_device(trained: dict[str, Any]) -> None:
    """The weights are finite afterwards, and each callback has had its effect."""
    assert {(outcome["on"], outcome["finite"]) for outcome in trained.values()} == {("hpu", True)}
    assert {"InUse", "Limit", "MaxInUse"} <= {
        name.rpartition("/")[2] for name in trained["DeviceStatsMonitor"]["logged"]
    }
    assert "train/device/flops_per_sec" in trained["ThroughputMonitor"]["logged"]
    assert trained["LearningRateFinder"]["lr"] != 0.1
    # 16 rows of 4 MiB exceed the memory, so 8 is the largest power of two that fits.
    assert trained["BatchSizeFinder"]["batch_size"] == 8
    # Four batches are two optimizer steps in the first epoch and one in the second.
    assert trained["GradientAccumulationScheduler"]["steps"] == 3
