"""Train a small classifier of handwritten digits on every Gaudi card of this machine.

    python examples/train_digits.py                     # on cards
    hpu-sim run --devices 2 examples/train_digits.py    # on simulated cards

With several cards, the script starts one process per card, and the processes average their gradients. This needs
hpu-ddp. The data are the 1,797 scanned digits of 8x8 pixels in scikit-learn.
"""

from typing import Any

import torch
from lightning import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 64
EPOCHS = 12
TEST_SIZE = 360


class DigitClassifier(LightningModule):
    """Two convolutions and two linear layers, from images of shape (batch, 1, 8, 8) to scores of shape (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss. It is not logged, because logging it in every step is a host-device synchronization."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Log the accuracy."""
        images, labels = batch
        hits = self.layers(images).argmax(dim=1) == labels
        self.log("accuracy", hits.float().mean(), batch_size=len(labels), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def digits() -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """Return the training data and the test data."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16  # Pixels are 0 to 16.
    labels = torch.tensor(data.target)
    training, testing = train_test_split(range(len(labels)), test_size=TEST_SIZE, stratify=labels, random_state=0)
    # A last batch of another size would be another graph.
    train_set = TensorDataset(images[training], labels[training])
    # The test images divide evenly among 2, 4 or 8 cards, so no image counts twice.
    test_set = TensorDataset(images[testing], labels[testing])
    return (
        DataLoader(train_set, BATCH_SIZE, shuffle=True, drop_last=True),
        DataLoader(test_set, batch_size=TEST_SIZE // 4),
    )


def train(**options: Any) -> tuple[Trainer, DigitClassifier]:
    """Train and test a classifier; `options` are further arguments of the Trainer."""
    seed_everything(0)
    training, testing = digits()
    trainer = Trainer(accelerator="hpu", devices="auto", max_epochs=EPOCHS, logger=False, **options)
    model = DigitClassifier()
    trainer.fit(model, training)
    trainer.test(model, testing)
    return trainer, model


if __name__ == "__main__":
    train()
