"""Train a model for fifty steps on two cards, with each kernel, with all and with none: MODEL STRATEGY."""

import json
import sys
from typing import Any

import torch
from lightning.fabric import Fabric

from hpu_ddp import FabricHPUDDPStrategy
from hpu_fsdp import FabricHPUFSDPStrategy, FabricHPUModelParallelStrategy
from hpu_kernels import HPUKernels

from .models import CHOICES, MODELS, NONE, make_optimizer


def _shard(model: Any, mesh: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=mesh["data_parallel"])
    return model


STRATEGIES: dict[str, Any] = {
    "ddp": FabricHPUDDPStrategy,
    "fsdp": lambda: FabricHPUFSDPStrategy(use_orig_params=True),
    "fsdp2": lambda: FabricHPUModelParallelStrategy(parallelize_fn=_shard),
}


def train(fabric: Fabric, name: str, switches: dict[str, bool]) -> torch.Tensor:
    """Return the losses of this rank."""
    torch.manual_seed(0)
    make, loss_of = MODELS[name]
    model: Any = fabric.setup_module(make())
    optimizer: Any = fabric.setup_optimizers(make_optimizer(model))
    generator, losses = torch.Generator().manual_seed(fabric.global_rank), []
    with HPUKernels(**switches).apply(model, optimizer) as kernels:
        for _ in range(50):
            loss = loss_of(model, generator)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        if all(switches.values()):
            fabric.print(kernels)
    return torch.stack(losses).cpu()


def main() -> None:
    """Print the largest difference of a loss of a rank from that without kernels, by kernel."""
    torch.set_num_threads(1)
    name, strategy = sys.argv[1:]
    fabric = Fabric(accelerator="hpu", devices=2, strategy=STRATEGIES[strategy]())
    fabric.launch()
    plain, distances = train(fabric, name, NONE), {}
    for choice, switches in CHOICES.items():
        distance = (train(fabric, name, switches) - plain).abs().max().to("hpu")
        largest: Any = fabric.all_reduce(distance, reduce_op="max")
        distances[choice] = float(largest)
    fabric.print("DISTANCES", json.dumps(distances))


if __name__ == "__main__":
    main()
