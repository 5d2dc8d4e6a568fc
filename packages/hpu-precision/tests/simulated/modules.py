"""Module that records the dtype of its scores."""

import torch

from hpu_testing import modules


class Classifier(modules.Classifier):
    """Classifier that records the dtype of its scores in each loop."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: dict[str, torch.dtype] = {}

    def compute_loss(self, batch: tuple[torch.Tensor, torch.Tensor], loop: str = "fit") -> torch.Tensor:
        """Return the loss, scalar."""
        points, classes = batch
        scores = self.net(points)
        self.dtypes[loop] = scores.dtype
        loss: torch.Tensor = torch.nn.functional.cross_entropy(scores, classes)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Record the dtype."""
        self.compute_loss(batch, "validate")

    def test_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Record the dtype."""
        self.compute_loss(batch, "test")

    def predict_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the scores, (batch, 2)."""
        scores = super().predict_step(batch, index)
        self.dtypes["predict"] = scores.dtype
        return scores
