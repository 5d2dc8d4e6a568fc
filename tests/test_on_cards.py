"""Common uses of the packages, on the cards of a Gaudi machine (`nox -t gaudi`) and elsewhere on simulated cards."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).parent.parent


class LinearModel(lightning.LightningModule):
    """Classifier of points by the sign of the sum of their coordinates."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss, of shape ()."""
        points, classes = batch
        loss = functional.cross_entropy(self.layers(points), classes)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer of all layers."""
        return torch.optim.Adam(self.parameters(), lr=0.02)


def data() -> DataLoader[Any]:
    """Return 16 batches of 8 points of shape (4,), with the class of each."""
    points = torch.randn(128, 4, generator=torch.Generator().manual_seed(7))
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=8)


def fit(folder: Path, **options: Any) -> tuple[lightning.Trainer, LinearModel]:
    """Train on one card, unless the Trainer's options say otherwise."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    chosen = {"accelerator": "hpu", "devices": 1, "max_epochs": 2, "enable_checkpointing": False, **quiet, **options}
    trainer = lightning.Trainer(default_root_dir=folder, **chosen)
    module = LinearModel()
    trainer.fit(module, data())
    return trainer, module


def losses(module: LinearModel) -> torch.Tensor:
    """Return the losses of all steps, on the CPU, in float32."""
    return torch.stack(module.losses).float().cpu()


@pytest.mark.hpu
def test_training_with_a_profile_and_a_checkpoint(tmp_path: Path) -> None:
    """Losses equal the CPU's up to rounding, the trace has the steps, and all tensors of the checkpoint are the CPU's.

    One test, because elsewhere each has a process of its own.
    """
    from hpu_profiler import HPUProfiler

    trainer, on_device = fit(tmp_path, profiler=HPUProfiler(dirpath=tmp_path, filename="profile"))
    _, on_cpu = fit(tmp_path, accelerator="cpu")
    trainer.save_checkpoint(tmp_path / "last.ckpt")

    assert trainer.strategy.root_device.type == "hpu"
    torch.testing.assert_close(losses(on_device), losses(on_cpu), rtol=1e-2, atol=1e-2)

    (trace,) = tmp_path.glob("*.pt.trace.json")
    names = {str(event.get("name")) for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]}
    assert any("run_training_batch" in name for name in names)

    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=False)
    states = [*checkpoint["state_dict"].values(), *checkpoint["optimizer_states"][0]["state"][0].values()]
    assert {state.device.type for state in states if isinstance(state, torch.Tensor)} == {"cpu"}
    weight = on_device.state_dict()["layers.0.weight"].cpu()
    assert torch.equal(checkpoint["state_dict"]["layers.0.weight"], weight)


@pytest.mark.slow
@pytest.mark.hpu
def test_training_in_bf16(tmp_path: Path) -> None:
    """The loss decreases."""
    _, module = fit(tmp_path, precision="bf16-mixed", max_epochs=4)

    assert losses(module)[-4:].mean() < losses(module)[:4].mean() / 2


@pytest.mark.slow
@pytest.mark.hpu(devices=2)
def test_demo_on_two_devices() -> None:
    """Both ranks end with the same weights."""
    command = [sys.executable, str(ROOT / "tools" / "demo.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    # The line may follow the other rank's progress bar.
    weights = re.findall(r"rank \d of 2 on .+? weights (\w+)", done.stdout)
    assert len(weights) == 2
    assert len(set(weights)) == 1
