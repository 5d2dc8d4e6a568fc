"""Test data: training on two ranks, of which the second argument, if any, names one to kill."""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.distributed import hccl
from torch import nn
from torch.multiprocessing.spawn import spawn

WORLD_SIZE = 2
STEPS = 4


def train(rank: int, port: str, killed: int) -> None:
    """Train on one rank."""
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=port)
    hccl.initialize_distributed_hpu(WORLD_SIZE, rank, rank)
    dist.init_process_group("hccl", rank=rank, world_size=WORLD_SIZE)
    model = nn.Linear(8, 8).to("hpu")
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(STEPS):
        if step == STEPS - 1 and rank == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(4, 8).to("hpu")).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        htcore.mark_step()
    dist.all_reduce(torch.tensor([rank], device="hpu"))
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(train, (sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1), nprocs=WORLD_SIZE)
