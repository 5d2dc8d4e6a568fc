"""LightningModules, data and a Trainer for the tests."""

from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hpu_core import HPUAccelerator, frameworks
from hpu_ddp import HPUDDPStrategy

BATCHES = 6
BATCH_SIZE = 4

_Base = frameworks.current().pytorch().LightningModule

Loader = DataLoader[tuple[torch.Tensor, ...]]


def make_loader(batches: int = BATCHES, ranks: int = 2) -> Loader:
    """Return a DataLoader of points, (4, 4) per batch, and their classes, (4,), with `batches` batches per rank."""
    points = torch.randn(batches * BATCH_SIZE * ranks, 4, generator=torch.Generator().manual_seed(7))
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=BATCH_SIZE)


def make_sharded_loader(loader: Loader, rank: int, ranks: int) -> Loader:
    """Return a DataLoader of one rank's samples in order; the sampler that Lightning adds shuffles.

    Train with `use_distributed_sampler=False`.
    """
    data = loader.dataset
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank, shuffle=False)  # type: ignore[var-annotated]
    return DataLoader(data, batch_size=loader.batch_size, sampler=sampler)


class Classifier(_Base):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Classifier of two classes that records the loss of each step on the device."""

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
        """Return an optimizer that has state."""
        return torch.optim.Adam(self.parameters(), lr=0.05)


def make_trainer(**options: Any) -> Any:
    """Return a Trainer for two ranks without logging and checkpoints; `options` are arguments of the Trainer."""
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


def parameter_bytes(module: torch.nn.Module) -> bytes:
    """Return the bytes of all parameters, for bitwise comparison between ranks."""
    return b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in module.parameters())


def to_floats(values: list[torch.Tensor]) -> list[float]:
    """Return scalar tensors as floats."""
    return [float(value) for value in values]
