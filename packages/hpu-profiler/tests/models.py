"""A small model for every Lightning, and a Trainer that is quiet."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import frameworks

_lightning = frameworks.current().pytorch()


class Model(_lightning.LightningModule):  # type: ignore[misc, name-defined] # Which Lightning is decided when this runs.
    """Two layers.

    Args:
        fails_at: The step in which training raises; -1 for none.
        profiler: For an action of its own.
        width: Of a sample.
    """

    def __init__(self, fails_at: int = -1, profiler: Any = None, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 2))
        self.fails_at = fails_at
        self.own_profiler = profiler

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Compute the loss."""
        if batch_idx == self.fails_at:
            raise RuntimeError("as told")
        (x,) = batch
        if self.own_profiler is not None:
            with self.own_profiler.profile("my_custom_action"):
                x = x * 2
            self.own_profiler.start("another_action")
            x = x + 1
            self.own_profiler.stop("another_action")
        loss: torch.Tensor = self.layers(x).pow(2).mean()
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Compute and forget."""
        self.layers(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(batches: int, width: int = 16) -> "DataLoader[Any]":
    """Return batches of 4 samples."""
    return DataLoader(TensorDataset(torch.ones(4 * batches, width)), batch_size=4)


def trainer(folder: Path, profiler: Any, **options: Any) -> Any:
    """Return a Trainer for the CPU that writes and shows nothing of its own; the options are the Trainer's."""
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
