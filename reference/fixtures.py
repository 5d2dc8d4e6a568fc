"""Models and data for blocks that leave theirs out, and a training for those that only make a Trainer.

Where a class of a block has "..." for its body, the methods of `Model` that it lacks stand there.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING or os.environ["REFERENCE_FRAMEWORK"] == "lightning":
    from lightning.pytorch import LightningDataModule, LightningModule
else:
    from pytorch_lightning import LightningDataModule, LightningModule

_SAMPLES: Final = 64
_BATCH_SIZE: Final = 2
_PIXELS: Final = 28 * 28


def _data(batch_size: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return images of shape (784,) and labels of noise: what is learned from them is of no account here."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(_SAMPLES, _PIXELS, generator=generator)
    labels = torch.randint(10, (_SAMPLES,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size)


class Model(LightningModule):
    """A classifier of images with everything that a Trainer needs."""

    def setup(self, stage: str) -> None:
        """Make the layer, also in a class whose own `__init__` the document shows in part."""
        if not hasattr(self, "layer"):
            self.layer = nn.Linear(_PIXELS, 10)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss, on whatever device the batch is."""
        images, labels = batch
        self.trained_on = images.device.type
        weight = self.layer.weight
        return nn.functional.cross_entropy(self.layer(images.to(weight.dtype)), labels)

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        """Return the images."""
        return _data(_BATCH_SIZE)

    def configure_optimizers(self) -> Any:
        """Return an optimizer."""
        return torch.optim.SGD(self.layer.parameters(), lr=0.1)


class ModelWithAdam(Model):
    """The same with the optimizer that most have, and its layer from the beginning, so that it can be converted."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(_PIXELS, 10)

    def configure_optimizers(self) -> Any:
        """Return an optimizer."""
        return torch.optim.Adam(self.layer.parameters())


class Digits(LightningDataModule):
    """The data on their own.

    Args:
        batch_size: Of the loader.
    """

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        """Return the images."""
        return _data(self.batch_size)


def one_step() -> None:
    """Train a layer for one step on the simulated card, without Lightning."""
    layer = nn.Linear(_PIXELS, 10).to("hpu")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    (images, labels), *_ = _data(_BATCH_SIZE)
    nn.functional.cross_entropy(layer(images.to("hpu")), labels.to("hpu")).backward()
    optimizer.step()


def complete(body: dict[str, Any]) -> None:
    """Add to the body of a class what a model needs and it has not."""
    for name, value in vars(Model).items():
        if not name.startswith("__") or name == "__init__":
            body.setdefault(name, value)


def finish(names: dict[str, Any]) -> None:
    """Train with what a block has made, if it has not trained itself, and use what else it has defined.

    Args:
        names: All names of the program.
    """
    trainer = names["trainer"]
    own = names.get("model")
    # Not `dir`: the document's own model is not initialised.
    for name in vars(type(own)):
        if name.startswith("custom_processing_step"):
            getattr(own, name)(torch.ones(1))
    if trainer.global_step == 0:
        trainer.fit(Model())
    # Where the batches were; a document's own model does not say, and then where the strategy trains.
    on = getattr(trainer.lightning_module, "trained_on", trainer.strategy.root_device.type)
    report = {
        "rank": trainer.global_rank,
        "ranks": trainer.world_size,
        "strategy": type(trainer.strategy).__name__,
        "precision": trainer.precision,
        "steps": trainer.global_step,
        "on": on,
    }
    # In one piece, because ranks write to the same place at the same time.
    os.write(1, ("reference " + json.dumps(report) + "\n").encode())
