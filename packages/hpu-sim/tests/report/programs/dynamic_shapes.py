"""Test data: training with batches of varying length and a host sync in every step."""

from __future__ import annotations

import sys

import torch
from habana_frameworks.torch import core as htcore
from torch import Tensor, nn


def evaluate(model: nn.Module) -> None:
    """Copy results to the host."""
    with torch.no_grad():
        for _ in range(3):
            model(torch.ones(4, 8).to("hpu")).mean().cpu()


def train(model: nn.Module, lengths: list[int]) -> list[float]:
    """Train on a batch of each length and return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step, length in enumerate(lengths):
        batch = torch.ones(length, 8).to("hpu")
        loss: Tensor = model(batch).pow(2).mean()
        loss.backward()
        htcore.mark_step()
        optimizer.step()
        optimizer.zero_grad()
        htcore.mark_step()
        losses.append(loss.item())
        if step % 5 == 4:
            evaluate(model)
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    train(nn.Linear(8, 1).to("hpu"), [16, 16, 16, 17, 16, 18, 17, 19, 16, 16])
    sys.stdout.write("done\n")
