"""A script of a reader's: it trains a little on all cards of its machine."""

from __future__ import annotations

import argparse

import torch
from lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(LightningModule):
    """A linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        inputs, labels = batch
        return nn.functional.cross_entropy(self.layer(inputs), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters())


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    epochs = parser.parse_args().epochs
    data = TensorDataset(torch.rand(64, 16), torch.randint(4, (64,)))
    trainer = Trainer(accelerator="hpu", devices="auto", max_epochs=epochs, logger=False, enable_checkpointing=False)
    trainer.fit(Model(), DataLoader(data, batch_size=4))


if __name__ == "__main__":
    main()
