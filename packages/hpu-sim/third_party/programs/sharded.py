"""Rank of a training that torch shards; rank 0 prints the difference of its weights to those of one CPU process."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

_STEPS: Final = 5
_BATCH: Final = 4  # per rank


def make_model() -> nn.Module:
    """Return the model, always with the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


def train(model: nn.Module, rows: Callable[[Tensor], Tensor], ranks: int) -> None:
    """Train on the rows of each batch that ``rows`` selects."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(_STEPS):
        inputs = rows(torch.randn(ranks * _BATCH, 8, generator=generator))
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


def train_with_fsdp1() -> nn.Module:
    """Shard with FSDP, a wrapper around each layer."""
    policy: Any = ModuleWrapPolicy({nn.Linear})
    return FullyShardedDataParallel(make_model().to("hpu"), auto_wrap_policy=policy, device_id=torch.device("hpu", 0))


def train_with_fsdp2() -> nn.Module:
    """Shard with `fully_shard`; hccl has no average, so gradients are summed and divided."""
    model = make_model().to("hpu")
    for module in (*(layer for layer in model.children() if isinstance(layer, nn.Linear)), model):
        fully_shard(module).set_force_sum_reduction_for_comms(True)
    return model


def main(version: str) -> None:
    """Train sharded on all ranks and whole on the CPU, and print the differences."""
    dist.init_process_group("hccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sharded = {"fsdp1": train_with_fsdp1, "fsdp2": train_with_fsdp2}[version]()
    train(sharded, lambda batch: batch[rank * _BATCH :][:_BATCH].to("hpu"), ranks)
    state = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        plain = make_model()
        train(plain, lambda batch: batch, ranks)
        expected = plain.state_dict()
        print(json.dumps({name: (state[name] - expected[name]).abs().max().item() for name in expected}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
