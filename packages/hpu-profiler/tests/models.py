"""A small model and a quiet Trainer of the current Lightning."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import frameworks

_lightning = frameworks.current().pytorch()


class Model(_lightning.LightningModule):  # type: ignore[misc, name-defined] # Which Lightning is known at run time.
    """Model with two linear layers.

    Args:
        fails_at: Step in which training raises; -1 for none.
        width: Width of a sample.
    """

    def __init__(self, fails_at: int = -1, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 2))
        self.fails_at = fails_at

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Return the loss."""
        if batch_idx == self.fails_at:
            raise RuntimeError("as requested")
        (x,) = batch
        loss: torch.Tensor = self.layers(x).pow(2).mean()
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Run the model."""
        self.layers(batch[0])

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Run the model."""
        self.layers(batch[0])

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Return the output of the model."""
        output: torch.Tensor = self.layers(batch[0])
        return output

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(batches: int, width: int = 16) -> "DataLoader[Any]":
    """Return a DataLoader with batches of 4 samples."""
    return DataLoader(TensorDataset(torch.ones(4 * batches, width)), batch_size=4)


def trainer(folder: Path, profiler: Any, **options: Any) -> Any:
    """Return a Trainer for the CPU without output.

    Args:
        folder: The Trainer's `default_root_dir`.
        profiler: The profiler.
        **options: Other arguments of the Trainer.
    """
    defaults = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "default_root_dir": folder,
        "profiler": profiler,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return _lightning.Trainer(**{**defaults, **options})
