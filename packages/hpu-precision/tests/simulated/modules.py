"""Small module and its data."""

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import frameworks

BATCHES = 6
BATCH_SIZE = 8

_Base = frameworks.current().pytorch().LightningModule


def loader() -> "DataLoader[tuple[torch.Tensor, ...]]":
    """Return BATCHES batches of points, of shape (8, 4), and their classes, of shape (8,)."""
    points = torch.randn(BATCHES * BATCH_SIZE, 4, generator=torch.Generator().manual_seed(7))
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=BATCH_SIZE)


class Classifier(_Base):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Classifier that records its losses, and the dtype of its scores in each loop."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.losses: list[torch.Tensor] = []
        self.dtypes: dict[str, torch.dtype] = {}

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return the scores of both classes, of shape (batch, 2)."""
        scores: torch.Tensor = self.net(points)
        return scores

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor | None:
        """Return the scalar loss."""
        loss = self._loss(batch, "fit")
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Record the dtype."""
        self._loss(batch, "validate")

    def test_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Record the dtype."""
        self._loss(batch, "test")

    def predict_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the scores, of shape (batch, 2)."""
        scores = self.forward(batch[0])
        self.dtypes["predict"] = scores.dtype
        return scores

    def configure_optimizers(self) -> Any:
        """Return Adam, which has state."""
        return torch.optim.Adam(self.parameters(), lr=0.05)

    def _loss(self, batch: tuple[torch.Tensor, torch.Tensor], loop: str) -> torch.Tensor:
        points, classes = batch
        scores = self.net(points)
        self.dtypes[loop] = scores.dtype
        loss: torch.Tensor = torch.nn.functional.cross_entropy(scores, classes)
        return loss


def losses(module: Classifier) -> list[float]:
    """Return the losses of all steps."""
    return [float(loss) for loss in module.losses]
