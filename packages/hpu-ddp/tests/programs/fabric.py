"""Training of a layer on two devices with Fabric: `fabric.py START_METHOD [apart]`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch

from hpu_core import HPUAccelerator, frameworks
from hpu_ddp import FabricHPUDDPStrategy


def train(fabric: Any) -> None:
    """Set up a layer, train it for a few steps and print the result."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(4, 2)
    layer, optimizer = fabric.setup(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    for _ in range(5):
        loss = layer(torch.randn(8, 4).to(fabric.device) + fabric.global_rank).square().mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    report = {"rank": fabric.global_rank, "weight": layer.weight.tolist().__repr__()}
    # One write, because ranks share the output.
    os.write(1, (json.dumps(report) + "\n").encode())


def main() -> None:
    """Launch the ranks."""
    strategy: Any = FabricHPUDDPStrategy(start_method=sys.argv[1])  # type: ignore[arg-type] # One of the literals.
    fabric = frameworks.current().fabric().Fabric(accelerator=HPUAccelerator(), strategy=strategy, devices=2)
    if sys.argv[1] == "popen":
        fabric.launch()
        train(fabric)
        if "apart" in sys.argv and fabric.global_rank == 0:
            fabric.barrier()
            os.write(1, b"passed the barrier\n")
        elif "apart" in sys.argv:
            fabric.all_reduce(torch.ones(1, device=fabric.device))
    else:
        fabric.launch(train)


if __name__ == "__main__":
    main()
