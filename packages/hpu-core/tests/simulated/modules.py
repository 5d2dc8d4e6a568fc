"""Small modules to train, and their data."""

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import frameworks

BATCHES = 6
BATCH_SIZE = 8

_Base = frameworks.current().pytorch().LightningModule


def loader() -> "DataLoader[tuple[torch.Tensor, ...]]":
    """Give BATCHES batches of two tensors: points of shape (8, 4), and in which of two classes each is, (8,)."""
    points = torch.randn(BATCHES * BATCH_SIZE, 4, generator=torch.Generator().manual_seed(7))
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=BATCH_SIZE)


class Classifier(_Base):  # type: ignore[misc, valid-type] # The class depends on what is installed.
    """Tells the two classes apart, and keeps the loss of each step on the device."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.losses: list[torch.Tensor] = []

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return the two classes' scores, (batch, 2)."""
        scores: torch.Tensor = self.net(points)
        return scores

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor | None:
        """Return the loss, scalar."""
        loss = self._loss(batch)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Log the loss."""
        self.log("loss", self._loss(batch))

    test_step = validation_step

    def predict_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the scores, (batch, 2)."""
        return self.forward(batch[0])

    def configure_optimizers(self) -> Any:
        """Return an optimizer with state."""
        return torch.optim.Adam(self.parameters(), lr=0.05)

    def _loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        points, classes = batch
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self.net(points), classes)
        return loss


class ManualClassifier(Classifier):
    """Optimizes each layer by its own optimizer, by hand: backward and step for the one, then for the other."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Take both steps."""
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            loss = self._loss(batch)
            self.manual_backward(loss)
            optimizer.step()
            self.losses.append(loss.detach())

    def configure_optimizers(self) -> Any:
        """Return one optimizer for each layer."""
        return [torch.optim.SGD(self.net[layer].parameters(), lr=0.1) for layer in (0, 2)]


def losses(module: Classifier) -> list[float]:
    """Return the losses of all steps so far."""
    return [float(loss) for loss in module.losses]
