"""Small modules to train, their data, and a Trainer for the ranks."""

import contextlib
import functools
import importlib.metadata
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from packaging.version import Version
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hpu_core import HPUAccelerator, frameworks
from hpu_deepspeed import _vendor

BATCH_SIZE = 16
# How many numbers a bucket has room for: enough for each net. DeepSpeed's default is 200 million, all of which 0.14.0
# divides by the number of ranks in each step, however few are gradients.
BUCKET = 1_000_000
_deepspeed = Version(importlib.metadata.version("deepspeed"))
# Whether this DeepSpeed is one that offloads to NVMe here.
HAS_NVME = _deepspeed >= Version("0.18")
# Whether it trains on a CPU with stock torch: 0.14.0 wants an extension of Intel's.
HAS_CPU = _deepspeed >= Version("0.14.4")
# Whether it has a tool that makes checkpoints universal that were saved by others than its own examples.
HAS_UNIVERSAL = _deepspeed >= Version("0.14.5")
# Whether its optimizer for 16 bit without ZeRO has Adam count a step without gradients first.
COUNTS_IDLE_STEP = _deepspeed >= Version("0.17.6")
# Whether this torch multiplies matrices of float16 on the CPU, which the simulated cards compute with.
HAS_HALF = Version(torch.__version__) >= Version("2.2")

_Base = frameworks.current().pytorch().LightningModule

Loader = DataLoader[tuple[torch.Tensor, ...]]


@functools.cache
def digits() -> TensorDataset:
    """Return images of shape (64,), from 0 to 1, and which digit each is."""
    data = load_digits()
    return TensorDataset(torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target))


def loader(rank: int, ranks: int, batches: int) -> Loader:
    """Give a rank its share of each batch of 16 digits, the same as one card would see, in the same order.

    To be trained with `use_distributed_sampler=False`; Lightning's own dealing shuffles.
    """
    data = torch.utils.data.Subset(digits(), range(batches * BATCH_SIZE))
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank, shuffle=False)  # type: ignore[var-annotated]
    return DataLoader(data, batch_size=BATCH_SIZE // ranks, sampler=sampler)


def perceptron() -> torch.nn.Module:
    """Return two linear layers, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))


class Reader(torch.nn.Module):
    """Reads an image as 8 rows of 8 pixels, with a transformer of 4 layers."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.embed = torch.nn.Linear(8, 16)
        self.encode = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.tell = torch.nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scores, of shape (batch, 10)."""
        scores: torch.Tensor = self.tell(self.encode(self.embed(images.view(-1, 8, 8))).mean(1))
        return scores


def transformer() -> torch.nn.Module:
    """Return a transformer of 4 layers, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return Reader()


NETS = {"perceptron": perceptron, "transformer": transformer}


def loss_of(net: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the loss, scalar, of a batch of images in the type of the weights."""
    images, classes = batch
    dtype = next(net.parameters()).dtype
    return torch.nn.functional.cross_entropy(net(images.to(dtype)).float(), classes)


class Classifier(_Base):  # type: ignore[misc, valid-type] # The class depends on what is installed.
    """Tells digits apart, and keeps the loss of each step, averaged over the ranks."""

    def __init__(self, net: str = "perceptron", lr: float = 0.02) -> None:
        super().__init__()
        self.net = NETS[net]()
        self.lr = lr
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        """Return the loss."""
        loss = loss_of(self.net, batch)
        self.losses.append(self.trainer.strategy.reduce(loss.detach().clone()))
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, ...], index: int) -> None:
        """Log the loss, averaged over the ranks."""
        self.log("loss", loss_of(self.net, batch), sync_dist=True)

    test_step = validation_step

    def predict_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        """Return the scores, (batch, 10)."""
        scores: torch.Tensor = self.net(batch[0].to(next(self.net.parameters()).dtype))
        return scores

    def configure_optimizers(self) -> Any:
        """Return an optimizer with state, whose steps do not depend on the length of the gradient."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Steady(Classifier):
    """Takes steps as long as the gradient, so that one that is scaled twice shows."""

    def configure_optimizers(self) -> Any:
        """Return an optimizer without adaptive steps, and a scheduler that works by steps."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=8)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def trainer(strategy: Any, **options: Any) -> Any:
    """Make a Trainer for two ranks that writes and shows nothing; the arguments are the Trainer's."""
    defaults: dict[str, Any] = {
        "accelerator": HPUAccelerator(),
        "devices": 2,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
    }
    return frameworks.current().pytorch().Trainer(strategy=strategy, **{**defaults, **options})


@contextlib.contextmanager
def whatever_its_size() -> Iterator[None]:
    """Have DeepSpeed offload to NVMe what it leaves in memory for being small, less than 1 MiB on a rank."""
    modules = ("optimizer_utils", "partitioned_param_swapper") if HAS_NVME else ()
    # As a strategy imports it, since the import by itself switches torch to deterministic algorithms.
    _vendor.load()
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(mock.patch(f"deepspeed.runtime.swap_tensor.{module}.MIN_AIO_BYTES", 1))
        yield


def on_nvme(folder: str) -> dict[str, Any]:
    """Return a strategy's options to have everything on NVMe, and nothing on the host or whole on the cards."""
    disk = {"device": "nvme", "nvme_path": folder}
    zero = {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "offload_param": {**disk, "buffer_size": 10_000, "buffer_count": 20, "max_in_cpu": 0},
        "offload_optimizer": disk,
    }
    return {"config": {"zero_optimization": zero, "zero_allow_untested_optimizer": True, "aio": {"block_size": 1024}}}


def numbers(values: list[torch.Tensor]) -> list[float]:
    """Return scalars as floats."""
    return [float(value) for value in values]
