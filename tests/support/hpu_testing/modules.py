"""Modules to train, their data, and a Trainer."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from hpu_core import HPUAccelerator, frameworks

BATCHES = 6
BATCH_SIZE = 8
IMAGES = 1792

_pytorch: Any = frameworks.current().pytorch()

Loader = DataLoader[tuple[torch.Tensor, ...]]


def make_loader(batches: int = BATCHES, batch_size: int = BATCH_SIZE, ranks: int = 1) -> Loader:
    """Return a DataLoader of points, (batch_size, 4), and their classes 0 and 1, (batch_size,).

    Args:
        batches: Number of batches per rank.
        batch_size: Samples per batch of one rank.
        ranks: Number of ranks that share the samples.
    """
    points = torch.randn(batches * batch_size * ranks, 4, generator=torch.Generator().manual_seed(7))
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=batch_size)


@functools.cache
def images(noise: float = 0.5) -> TensorDataset:
    """Return IMAGES images of shape (64,) with values from 0 to 1 around 10 centers, and their classes.

    Args:
        noise: Share of the noise in the values.
    """
    generator = torch.Generator().manual_seed(7)
    classes = torch.randint(10, (IMAGES,), generator=generator)
    centers = torch.rand(10, 64, generator=generator)
    values = (1 - noise) * centers[classes] + noise * torch.rand(IMAGES, 64, generator=generator)
    return TensorDataset(values, classes)


def make_sharded_loader(data: Dataset[Any], batch_size: int, rank: int, ranks: int) -> Loader:
    """Return a DataLoader of one rank's part of each batch, in the order in which a single device sees the samples.

    Train with `use_distributed_sampler=False`, because the sampler that Lightning adds shuffles.

    Args:
        data: All samples.
        batch_size: Samples per batch of all ranks together.
        rank: The rank.
        ranks: Number of ranks.
    """
    sampler: Any = DistributedSampler(data, num_replicas=ranks, rank=rank, shuffle=False)
    return DataLoader(data, batch_size=batch_size // ranks, sampler=sampler)


class Classifier(_pytorch.LightningModule):  # type: ignore[misc] # The class depends on the framework.
    """Classifier of points that keeps the loss of each training step on the device."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.losses: list[torch.Tensor] = []

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return the scores, (batch, 2)."""
        scores: torch.Tensor = self.net(points)
        return scores

    def compute_loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the loss, scalar."""
        points, classes = batch
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self.net(points), classes)
        return loss

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor | None:
        """Return the loss."""
        loss = self.compute_loss(batch)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Log the loss, averaged over the ranks."""
        self.log("loss", self.compute_loss(batch), sync_dist=self.trainer.world_size > 1)

    test_step = validation_step

    def predict_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the scores, (batch, 2)."""
        return self.forward(batch[0])

    def configure_optimizers(self) -> Any:
        """Return an optimizer that has state."""
        return torch.optim.Adam(self.parameters(), lr=0.05)


class ManualClassifier(Classifier):
    """Classifier with manual optimization and one optimizer per layer."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Step each optimizer."""
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            loss = self.compute_loss(batch)
            self.manual_backward(loss)
            optimizer.step()
            self.losses.append(loss.detach())

    def configure_optimizers(self) -> Any:
        """Return an optimizer per layer."""
        return [torch.optim.SGD(self.net[layer].parameters(), lr=0.1) for layer in (0, 2)]


def make_trainer(**options: Any) -> Any:
    """Return a Trainer for two ranks without logger, checkpoints and progress bar; `options` are its arguments."""
    defaults: dict[str, Any] = {
        "accelerator": HPUAccelerator(),
        "devices": 2,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return _pytorch.Trainer(**{**defaults, **options})


def to_floats(values: list[torch.Tensor]) -> list[float]:
    """Return scalar tensors as floats."""
    return [float(value) for value in values]


def parameter_bytes(module: torch.nn.Module) -> bytes:
    """Return the bytes of all parameters, for bitwise comparison between ranks."""
    return b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in module.parameters())
