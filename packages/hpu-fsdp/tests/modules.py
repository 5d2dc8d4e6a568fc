"""LightningModules, data and a Trainer for the tests."""

import functools
from typing import Any

import torch
from packaging.version import Version
from torch.utils.data import TensorDataset

from hpu_core import SingleHPUStrategy, frameworks
from hpu_testing import modules

# A divisor of the number of images, so that the last batch is not smaller.
BATCH_SIZE = 64
STEPS = 20

_lightning = frameworks.current()
_Base = _lightning.pytorch().LightningModule


@functools.cache
def dataset() -> TensorDataset:
    """Return images of shape (64,) with values from -2 to 2 around 10 centers, and their classes."""
    images, classes = modules.images().tensors
    return TensorDataset(4 * images - 2, classes)


def make_loader(rank: int = 0, ranks: int = 1) -> modules.Loader:
    """Return a DataLoader of a rank's part of each batch, with the samples in the order of one rank."""
    return modules.make_sharded_loader(dataset(), BATCH_SIZE, rank, ranks)


class Layer(torch.nn.Linear):
    """Linear layer of its own class, which a policy can name."""


class Perceptron(torch.nn.Sequential):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__(Layer(64, 32), torch.nn.Tanh(), Layer(32, 32), torch.nn.Tanh(), Layer(32, 10))


# Modules that are wrapped each by itself.
UNITS: set[type[torch.nn.Module]] = {Layer}


def make_network() -> Any:
    """Return a network with the same weights in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return Perceptron()


class ImageClassifier(_Base):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Classifier of images that records the loss of each step."""

    def __init__(self, optimizer: str = "sgd") -> None:
        super().__init__()
        self.net = make_network()
        self.optimizer = optimizer
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss, scalar."""
        images, labels = batch
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self.net(images).float(), labels)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        """Return SGD, because adaptive steps amplify rounding errors, or an optimizer with more state, or without."""
        parameters = self.trainer.model.parameters()
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        if self.optimizer == "stateless":
            return torch.optim.SGD(parameters, lr=0.1)
        return torch.optim.AdamW(parameters, lr=0.003)


def make_trainer(**options: Any) -> Any:
    """Return a Trainer of STEPS steps on the ranks' own parts of the batches; `options` are its arguments."""
    return modules.make_trainer(**{"max_epochs": -1, "max_steps": STEPS, "use_distributed_sampler": False, **options})


def train(module: Any, trainer: Any, **options: Any) -> list[float]:
    """Train on this rank's shard of the images; return the losses, averaged over the ranks."""
    ranks = trainer.world_size
    # Lightning before 2.6 has no such argument, and loads everything.
    if "ckpt_path" in options and Version("2.6.dev0") <= _lightning.version:
        options["weights_only"] = False
    trainer.fit(module, make_loader(trainer.global_rank, ranks), **options)
    losses = torch.stack(module.losses)
    return modules.to_floats(list(trainer.strategy.reduce(losses, reduce_op="mean")))


def train_on_one_device(steps: int = STEPS, **options: Any) -> list[float]:
    """Train on the whole batches; return the losses."""
    module = ImageClassifier()
    trainer = make_trainer(strategy=SingleHPUStrategy(), devices=1, max_steps=steps, **options)
    trainer.fit(module, make_loader())
    return modules.to_floats(module.losses)
