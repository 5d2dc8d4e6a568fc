"""Small modules to train, and their data."""

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import frameworks

BATCHES = 6
BATCH_SIZE = 8

_LightningModule = frameworks.current().pytorch().LightningModule


def loader() -> "DataLoader[tuple[torch.Tensor, ...]]":
    """Return BATCHES batches of points, shape (8, 4), and their classes 0 and 1, shape (8,)."""
    points = torch.randn(BATCHES * BATCH_SIZE, 4, generator=torch.Generator().manual_seed(7))
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=BATCH_SIZE)


class Classifier(_LightningModule):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Classifier that keeps the loss of each training step on the device."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.losses: list[torch.Tensor] = []

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(points)
        return scores

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor | None:
        loss = self.compute_loss(batch)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.log("loss", self.compute_loss(batch))

    test_step = validation_step

    def predict_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        return self.forward(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.05)

    def compute_loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the cross entropy of a batch."""
        points, classes = batch
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self.net(points), classes)
        return loss


class ManualClassifier(Classifier):
    """Classifier with manual optimization and one optimizer per layer."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            loss = self.compute_loss(batch)
            self.manual_backward(loss)
            optimizer.step()
            self.losses.append(loss.detach())

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.net[layer].parameters(), lr=0.1) for layer in (0, 2)]


def losses(module: Classifier) -> list[float]:
    """Return the losses of all training steps."""
    return [float(loss) for loss in module.losses]
