"""FSDP and FSDP2 train like data parallelism: hpu-fsdp and hpu-ddp, which do not import each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HPU_SIM = Path(sys.executable).with_name("hpu-sim")

# Trains a classifier with each strategy on two devices, and writes the losses. Argument: output file.
PROGRAM = """
import json
import sys
import warnings
from pathlib import Path

import torch
from lightning import LightningModule, Trainer
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy


class Classifier(LightningModule):
    def __init__(self, shard):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
        self.shard, self.losses = shard, []

    def configure_model(self):
        if self.shard:
            for layer in (self.layers[0], self.layers[2], self.layers):
                fully_shard(layer, mesh=self.device_mesh["data_parallel"], reshard_after_forward=False)

    def training_step(self, batch, index):
        loss = functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    points = torch.randn(64, 4, generator=torch.Generator().manual_seed(7))
    loader = DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=8)
    losses = {}
    for name, strategy in {
        "ddp": "ddp",
        "fsdp": HPUFSDPStrategy(auto_wrap_policy={torch.nn.Linear}),
        "fsdp2": HPUModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
    }.items():
        trainer = Trainer(
            accelerator="hpu", strategy=strategy, devices=2, max_epochs=3, logger=False, enable_checkpointing=False
        )
        module = Classifier(shard=name == "fsdp2")
        trainer.fit(module, loader)
        losses[name] = trainer.strategy.reduce(torch.stack(module.losses)).tolist()
    if trainer.is_global_zero:
        Path(sys.argv[1]).write_text(json.dumps(losses))
"""


@pytest.mark.slow
def test_sharded_strategies_train_like_data_parallelism(tmp_path: Path) -> None:
    """Trained one after another in one job, all three strategies have the same losses."""
    script, output = tmp_path / "train.py", tmp_path / "losses.json"
    script.write_text(PROGRAM, encoding="utf-8")
    environment = os.environ | {"HPU_SIM_RUNTIME_DIR": str(tmp_path / "runtime"), "PT_HPU_LAZY_MODE": "0"}
    command = [str(HPU_SIM), "run", "--devices", "2", str(script), str(output)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr

    losses = json.loads(output.read_text(encoding="utf-8"))
    assert losses["fsdp"] == pytest.approx(losses["ddp"], abs=1e-6)
    assert losses["fsdp2"] == pytest.approx(losses["ddp"], abs=1e-6)
    assert losses["ddp"][-1] < losses["ddp"][0]
