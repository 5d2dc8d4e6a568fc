"""Small modules, their data and a Trainer, for the ranks of the tests."""

import contextlib
import importlib.metadata
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_deepspeed import _deepspeed
from hpu_testing import modules

BATCH_SIZE = 16
# Elements per bucket, enough for each net. DeepSpeed 0.14.0 divides every element of a bucket in each step, and the
# default is 200 million.
BUCKET_SIZE = 1_000_000
_version = Version(importlib.metadata.version("deepspeed"))
# The first DeepSpeed that works with hpu-deepspeed's async I/O.
SUPPORTS_NVME = _version >= Version("0.18")
# On the CPU, DeepSpeed 0.14.0 needs Intel's extension for torch.
SUPPORTS_CPU = _version >= Version("0.14.4")
# Older releases convert checkpoints of Megatron to universal ones only.
SUPPORTS_UNIVERSAL = _version >= Version("0.14.5")
# Whether DeepSpeed's BF16 optimizer, used in stage 0, runs one Adam step with zero gradients before the first batch.
ADAM_STEPS_BEFORE_FIRST = _version >= Version("0.17.6")
# Older torch has no float16 matrix product on the CPU, with which the simulator computes.
SUPPORTS_HALF = Version(torch.__version__) >= Version("2.2")

_Base = frameworks.current().pytorch().LightningModule


def loader(rank: int, ranks: int, batches: int) -> modules.Loader:
    """Return a rank's part of each batch of 16 images, in the order in which a single device would see them."""
    data = torch.utils.data.Subset(modules.images(noise=0.1), range(batches * BATCH_SIZE))
    return modules.make_sharded_loader(data, BATCH_SIZE, rank, ranks)


def mlp() -> torch.nn.Module:
    """Return two linear layers with fixed initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))


class TransformerClassifier(torch.nn.Module):
    """Transformer of 4 layers that reads an image as a sequence of 8 rows."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.embed = torch.nn.Linear(8, 16)
        self.encode = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scores, of shape (batch, 10)."""
        scores: torch.Tensor = self.head(self.encode(self.embed(images.view(-1, 8, 8))).mean(1))
        return scores


def transformer() -> torch.nn.Module:
    """Return a transformer with fixed initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return TransformerClassifier()


NETS = {"mlp": mlp, "transformer": transformer}


def compute_loss(net: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the scalar loss of a batch, computed in the dtype of the weights."""
    images, classes = batch
    dtype = next(net.parameters()).dtype
    return torch.nn.functional.cross_entropy(net(images.to(dtype)).float(), classes)


class Classifier(_Base):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Digit classifier that records each step's loss, averaged over the ranks."""

    def __init__(self, net: str = "mlp", lr: float = 0.02) -> None:
        super().__init__()
        self.net = NETS[net]()
        self.lr = lr
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        """Return the loss."""
        loss = compute_loss(self.net, batch)
        self.losses.append(self.trainer.strategy.reduce(loss.detach().clone()))
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, ...], index: int) -> None:
        """Log the loss, averaged over the ranks."""
        self.log("loss", compute_loss(self.net, batch), sync_dist=True)

    test_step = validation_step

    def predict_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        """Return the scores, of shape (batch, 10)."""
        scores: torch.Tensor = self.net(batch[0].to(next(self.net.parameters()).dtype))
        return scores

    def configure_optimizers(self) -> Any:
        """Return Adam, whose steps do not depend on the scale of the gradient."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class SGDClassifier(Classifier):
    """Classifier trained with SGD, whose steps show a gradient that is scaled twice."""

    def configure_optimizers(self) -> Any:
        """Return SGD with momentum and a scheduler with interval "step"."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=8)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def trainer(strategy: Any, **options: Any) -> Any:
    """Return a Trainer on the ranks' own parts of the batches; `options` are its arguments."""
    return modules.make_trainer(strategy=strategy, **{"use_distributed_sampler": False, **options})


@contextlib.contextmanager
def no_min_aio_size() -> Iterator[None]:
    """Make DeepSpeed offload tensors smaller than 1 MiB to NVMe as well."""
    swappers = ("optimizer_utils", "partitioned_param_swapper") if SUPPORTS_NVME else ()
    # A plain import would enable torch's deterministic algorithms.
    _deepspeed.load()
    with contextlib.ExitStack() as stack:
        for module in swappers:
            stack.enter_context(mock.patch(f"deepspeed.runtime.swap_tensor.{module}.MIN_AIO_BYTES", 1))
        yield


def nvme_options(directory: str) -> dict[str, Any]:
    """Return a strategy's arguments that offload all parameters and optimizer states to NVMe."""
    disk = {"device": "nvme", "nvme_path": directory}
    zero = {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "offload_param": {**disk, "buffer_size": 10_000, "buffer_count": 20, "max_in_cpu": 0},
        "offload_optimizer": disk,
    }
    return {"config": {"zero_optimization": zero, "zero_allow_untested_optimizer": True, "aio": {"block_size": 1024}}}
