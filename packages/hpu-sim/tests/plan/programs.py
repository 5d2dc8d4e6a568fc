"""Models and training loops that a test plans and runs on the simulated device."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

import hpu_sim
from hpu_sim import plan

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH: Final = 16


class Attention(nn.Module):
    """A layer of a transformer with tied input and output embeddings, from tokens (batch, seq) to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean score of each class."""
        scores: Tensor = self.head(self.block(self.embedding(tokens)))
        return scores.mean(dim=1)


def mlp() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), torch.rand(BATCH, 64)


def cnn() -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 64, 10)), torch.rand(BATCH, 3, 16, 16)


def transformer() -> tuple[nn.Module, Tensor]:
    return Attention(), torch.randint(0, 100, (BATCH, 12))


MODELS: Final = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def train(make: Callable[[], tuple[nn.Module, Tensor]], steps: int = 3, wrap: str = "") -> list[dict[str, int]]:
    """Train and return the simulator's counters after each step.

    Args:
        make: Function that returns a model and a batch.
        steps: Number of steps.
        wrap: "ddp" or "fsdp2" to wrap the model; empty for one device.
    """
    torch.manual_seed(0)
    module, batch = make()
    model: nn.Module = module.to("hpu")
    if wrap == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif wrap == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        mesh = init_device_mesh("hpu", (torch.distributed.get_world_size(),))
        for child in model.children():
            if any(True for _ in child.parameters()):
                fully_shard(child, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(enable=True)  # HCCL has no average.
    optimizer = torch.optim.AdamW(model.parameters())
    labels = torch.zeros(BATCH, dtype=torch.int64)
    counters = []
    for _ in range(steps):
        with plan.step():
            inputs, targets = batch.to("hpu"), labels.to("hpu")
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        counters.append(hpu_sim.stats())
    return counters


def run_on_device(make: Callable[[], tuple[nn.Module, Tensor]]) -> int:
    """Train on the simulated device and return the peak of its memory, less what other tests keep."""
    gc.collect()
    hpu_sim.reset_stats()
    before = hpu_sim.stats()["allocated_bytes"]
    return train(make)[-1]["peak_bytes"] - before
