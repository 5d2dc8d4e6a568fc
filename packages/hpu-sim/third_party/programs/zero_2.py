"""Rank of a ZeRO-2 training; rank 0 prints its losses, then those of plain torch on the CPU."""

from __future__ import annotations

from typing import Any, Final

import deepspeed
import torch
import torch.distributed as dist
from torch import Tensor, nn

_STEPS: Final = 20
_BATCH: Final = 8  # per rank
_LEARNING_RATE: Final = 0.02


def make_model() -> nn.Module:
    """Return the model, always with the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))


def make_batches(ranks: int) -> list[tuple[Tensor, Tensor]]:
    """Return the inputs and targets of all ranks, a batch per step."""
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(ranks * _BATCH, 16, generator=generator) for _ in range(_STEPS)]
    return [(each, each.sum(dim=1, keepdim=True)) for each in inputs]


def train_with_deepspeed() -> list[float]:
    """Train with DeepSpeed, and return the mean loss over the ranks of each step."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": _BATCH,
        "optimizer": {"type": "AdamW", "params": {"lr": _LEARNING_RATE, "weight_decay": 0.0, "torch_adam": True}},
        "gradient_clipping": 0.0,  # DeepSpeed's default clips, torch's does not.
        "zero_optimization": {"stage": 2},
    }
    model = make_model()
    deepspeed.init_distributed()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    losses = []
    for inputs, targets in make_batches(ranks):
        own = slice(rank * _BATCH, (rank + 1) * _BATCH)
        loss = nn.functional.mse_loss(engine(inputs[own].to(engine.device)), targets[own].to(engine.device))
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
    return losses


def train_with_torch(ranks: int) -> list[float]:
    """Train in one process with all the data, and return the loss of each step."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.0)
    losses = []
    for inputs, targets in make_batches(ranks):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train both ways."""
    sharded = train_with_deepspeed()
    if dist.get_rank() == 0:
        plain = train_with_torch(dist.get_world_size())
        print(" | ".join(" ".join(map(str, losses)) for losses in (sharded, plain)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
