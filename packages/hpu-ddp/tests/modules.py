"""Small modules to train, their data, and a Trainer for the ranks."""

from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hpu_core import HPUAccelerator, frameworks
from hpu_ddp import HPUDDPStrategy

BATCHES = 6
BATCH_SIZE = 4

_Base = frameworks.current().pytorch().LightningModule

Loader = DataLoader[tuple[torch.Tensor, ...]]


def loader(batches: int = BATCHES, ranks: int = 2) -> Loader:
    """Give each rank batches of two tensors: points of shape (4, 4), and in which of two classes each is, (4,)."""
    points = torch.randn(batches * BATCH_SIZE * ranks, 4, generator=torch.Generator().manual_seed(7))
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=BATCH_SIZE)


def dealt(whole: Loader, rank: int, ranks: int) -> Loader:
    """Give one rank its part of each batch of all ranks, in order; Lightning's own dealing shuffles.

    To be trained with `use_distributed_sampler=False`.
    """
    data = whole.dataset
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank, shuffle=False)  # type: ignore[var-annotated]
    return DataLoader(data, batch_size=whole.batch_size, sampler=sampler)


class Classifier(_Base):  # type: ignore[misc, valid-type] # The class depends on what is installed.
    """Tells the two classes apart, and keeps the loss of each step on the device."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.losses: list[torch.Tensor] = []

    def loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the loss, scalar."""
        points, classes = batch
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self.net(points), classes)
        return loss

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor | None:
        """Return the loss."""
        loss = self.loss(batch)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Log the loss, averaged over the ranks."""
        self.log("loss", self.loss(batch), sync_dist=True)

    test_step = validation_step

    def predict_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the scores, (batch, 2)."""
        scores: torch.Tensor = self.net(batch[0])
        return scores

    def configure_optimizers(self) -> Any:
        """Return an optimizer with state."""
        return torch.optim.Adam(self.parameters(), lr=0.05)


def trainer(**options: Any) -> Any:
    """Make a Trainer for two ranks that writes and shows nothing; the arguments are the Trainer's."""
    defaults: dict[str, Any] = {
        "accelerator": HPUAccelerator(),
        "devices": 2,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    if "strategy" not in options:
        defaults["strategy"] = HPUDDPStrategy()
    return frameworks.current().pytorch().Trainer(**{**defaults, **options})


def weights(module: torch.nn.Module) -> bytes:
    """Return the bits of all parameters, to be compared between ranks."""
    return b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in module.parameters())


def numbers(values: list[torch.Tensor]) -> list[float]:
    """Return scalars as floats."""
    return [float(value) for value in values]
