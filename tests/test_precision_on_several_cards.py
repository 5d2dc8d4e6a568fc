"""Test of mixed precision with data parallelism: hpu-precision and hpu-ddp, which do not import each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpu_testing.fork_server import forks

HPU_SIM = Path(sys.executable).with_name("hpu-sim")

# Trains a classifier and writes each rank's final weights. Arguments: output directory, plugin's arguments as JSON.
PROGRAM = """
import json
import sys
import warnings
from pathlib import Path

import torch
from lightning import LightningModule, Trainer
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import HPUAccelerator
from hpu_ddp import HPUDDPStrategy
from hpu_precision import HPUPrecisionPlugin


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    def training_step(self, batch, index):
        scores = self.layers(batch[0])
        self.dtype_of_scores = str(scores.dtype)
        return functional.cross_entropy(scores, batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    directory, arguments = Path(sys.argv[1]), json.loads(sys.argv[2])
    points = torch.randn(64, 4, generator=torch.Generator().manual_seed(7))
    loader = DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=8)
    weights = []
    for fused in (False, True):
        trainer = Trainer(
            accelerator=HPUAccelerator(),
            strategy=HPUDDPStrategy(),
            devices=2,
            plugins=[HPUPrecisionPlugin(**arguments, fused_clip_norm=fused)],
            gradient_clip_val=0.05,
            max_epochs=3,
            logger=False,
            enable_checkpointing=False,
        )
        model = Classifier()
        trainer.fit(model, loader)
        weights.append(torch.cat([each.detach().flatten().cpu() for each in model.parameters()]).tolist())
    results = {"dtype": model.dtype_of_scores, "weights": weights}
    (directory / f"{trainer.global_rank}.json").write_text(json.dumps(results))
"""


@pytest.mark.parametrize(
    ("release", "arguments", "expected"),
    [
        pytest.param("1.24.1", {"precision": 16}, "torch.float16", id="fp16"),
        pytest.param(
            "1.24.1",
            {"precision": 16, "bf16_ops": ["linear", "relu"]},
            "torch.bfloat16",
            marks=pytest.mark.slow,
            id="own lists",
        ),
        pytest.param("1.11.0", {"precision": 16}, "torch.bfloat16", marks=pytest.mark.slow, id="HMP"),
    ],
)
def test_ranks_train_in_the_precision_with_equal_weights(
    release: str, arguments: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """The final weights of both ranks are bitwise equal, and within rounding with the bridge's clipping by norm."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    command = [str(HPU_SIM), "run", "--devices", "2", str(script), str(tmp_path), json.dumps(arguments)]
    environment = os.environ | {"HPU_SIM_RELEASE": release, "HPU_SIM_RUNTIME_DIR": str(tmp_path / "runtime")}
    with forks():
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr

    first, second = (json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1))
    assert first == second
    assert first["dtype"] == expected
    torchs, fused = first["weights"]
    assert fused == pytest.approx(torchs, abs=1e-5)
