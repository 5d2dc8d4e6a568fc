"""Models and data for blocks that leave theirs out, and a training for blocks that only make a Trainer."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING or os.environ["DOCS_RUNNER_FRAMEWORK"] == "lightning":
    from lightning.pytorch import LightningDataModule, LightningModule
else:
    from pytorch_lightning import LightningDataModule, LightningModule

_NUM_SAMPLES: Final = 64
_BATCH_SIZE: Final = 2
_NUM_FEATURES: Final = 28 * 28


def _make_loader(batch_size: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return a loader of random images of shape (784,) and random labels."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(_NUM_SAMPLES, _NUM_FEATURES, generator=generator)
    labels = torch.randint(10, (_NUM_SAMPLES,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size)


class Model(LightningModule):
    """Image classifier with everything that a Trainer needs."""

    def setup(self, stage: str) -> None:
        """Create the layer, also for a class whose `__init__` the document shows in part."""
        if not hasattr(self, "layer"):
            self.layer = nn.Linear(_NUM_FEATURES, 10)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss and keep the type of the batch's device."""
        images, labels = batch
        self.batch_device = images.device.type
        return nn.functional.cross_entropy(self.layer(images.to(self.layer.weight.dtype)), labels)

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        """Return the images."""
        return _make_loader(_BATCH_SIZE)

    def configure_optimizers(self) -> Any:
        """Return an optimizer."""
        return torch.optim.SGD(self.layer.parameters(), lr=0.1)


class AdamModel(Model):
    """Model with Adam and with a layer from the beginning, so that the layer can be converted."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(_NUM_FEATURES, 10)

    def configure_optimizers(self) -> Any:
        """Return an optimizer."""
        return torch.optim.Adam(self.layer.parameters())


class DataModule(LightningDataModule):
    """Images as a data module, in batches of `batch_size`."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        """Return the images."""
        return _make_loader(self.batch_size)


def train_one_step() -> None:
    """Train a layer for one step on the simulated card, without Lightning."""
    layer = nn.Linear(_NUM_FEATURES, 10).to("hpu")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    (images, labels), *_ = _make_loader(_BATCH_SIZE)
    nn.functional.cross_entropy(layer(images.to("hpu")), labels.to("hpu")).backward()
    optimizer.step()


def add_missing_methods(namespace: dict[str, Any]) -> None:
    """Add the methods of `Model` that a class lacks to its namespace, where its body is "..."."""
    for name, value in vars(Model).items():
        if not name.startswith("__") or name == "__init__":
            namespace.setdefault(name, value)


def train_and_report(names: dict[str, Any]) -> None:
    """Train with the block's Trainer unless the block did, and print a line for this rank."""
    trainer = names["trainer"]
    model = names.get("model")
    # Not `dir`, because the document's own model may be uninitialised.
    for name in vars(type(model)):
        if name.startswith("custom_processing_step"):
            getattr(model, name)(torch.ones(1))
    if trainer.global_step == 0:
        trainer.fit(Model())
    report = {
        "ranks": trainer.world_size,
        "strategy": type(trainer.strategy).__name__,
        "precision": trainer.precision,
        "steps": trainer.global_step,
        # A document's own model does not keep the device of its batches.
        "device": getattr(trainer.lightning_module, "batch_device", trainer.strategy.root_device.type),
    }
    # One write from the beginning of a line, because the ranks share the output.
    os.write(1, f"\ndocs_runner {json.dumps(report)}\n".encode())
