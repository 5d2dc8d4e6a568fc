"""Code under test: a small training on one Gaudi card or, under torchrun, on several.

torchrun --nproc-per-node 2 train.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def make_model() -> nn.Module:
    """Return the model with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))


def make_batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of inputs, of shape (32, 16), and targets, of shape (32, 1): the sum of each input."""
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(32, 16, generator=generator) for _ in range(count)]
    return [(each, each.sum(dim=1, keepdim=True)) for each in inputs]


def train(model: nn.Module, batches: list[tuple[Tensor, Tensor]], device: str) -> list[float]:
    """Train a model in place.

    Args:
        model: The model, on the device.
        batches: Inputs and targets, on the host.
        device: "hpu" or "cpu".

    Returns:
        The loss of each batch. Reading a loss inside the loop would be a host-device synchronization in each step.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for inputs, targets in batches:
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        mark_step(device)
        optimizer.step()
        mark_step(device)
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def mark_step(device: str) -> None:
    """Run the graph that lazy mode has collected."""
    if device == "hpu":
        from habana_frameworks.torch import core as htcore

        htcore.mark_step()


def main() -> None:
    """Train under torchrun, each rank on its own batches, and print the first and the last loss of rank 0."""
    from habana_frameworks.torch.distributed import hccl
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    world_size, rank, _ = hccl.initialize_distributed_hpu()
    distributed.init_process_group("hccl", rank=rank, world_size=world_size)
    model = DistributedDataParallel(make_model().to("hpu"))
    losses = train(model, make_batches(20 * world_size)[rank::world_size], "hpu")
    distributed.destroy_process_group()
    if rank == 0:
        print(losses[0], losses[-1])


if __name__ == "__main__":
    main()
