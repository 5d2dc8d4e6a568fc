"""Rank of a training with accelerate that uses all its features; rank 0 prints the results."""

from __future__ import annotations

import json
import sys
from typing import Final

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

_EXAMPLES: Final = 60  # no multiple of ranks times batch


def make_data() -> DataLoader[tuple[Tensor, ...]]:
    """Return rows of numbers with their sums, in batches of 8."""
    inputs = torch.randn(_EXAMPLES, 16, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=8)


def train(accelerator: Accelerator) -> tuple[nn.Module, list[float]]:
    """Train with gradient accumulation, and return the model and each step's loss over all ranks."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, data = accelerator.prepare(model, optimizer, make_data())
    losses = []
    for _ in range(4):
        for inputs, targets in data:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return model, losses


def main(folder: str) -> None:
    """Train, save and load, and print the results."""
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model, losses = train(accelerator)
    trained = [parameter.detach().clone() for parameter in model.parameters()]
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    accelerator.load_state(folder)
    restored = all(torch.equal(*pair) for pair in zip(trained, model.parameters(), strict=True))
    seen = [accelerator.gather_for_metrics(targets) for _, targets in accelerator.prepare(make_data())]
    if accelerator.is_main_process:
        known = {
            "kind": accelerator.distributed_type,
            "losses": losses,
            "restored": restored,
            "gathered": sum(map(len, seen)),
        }
        print(json.dumps(known), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
