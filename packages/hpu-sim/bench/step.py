"""Benchmark of the simulator's overhead: a training step on the simulated device, against the CPU.

    python packages/hpu-sim/bench/step.py

A step is forward, backward and AdamW on one resident batch. Steps of both kinds alternate in one process with one
thread, until the median of their ratios is known well enough. The figures need an otherwise idle machine. They are
simulated and say nothing about a card. The exit code is 1 if a limit is missed or cannot be judged.

Backward passes of the device run on a thread of autograd's, as on a card. The limits are for what the device adds, so
the first rows keep backward passes on the calling thread, as those of the CPU are. Waking the thread and moving the
step's data to its core takes a tenth to a third of a step of the MLP: the last row, which has a wide limit.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import gates

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


@dataclass(frozen=True)
class Workload:
    """Workload of the benchmark.

    Attributes:
        name: Name in the table.
        make: Function that returns a model, a batch and its targets, on the CPU.
        steps: Largest number of steps of each kind.
        limit: Largest ratio of simulated to CPU time that hpu-sim guarantees.
        has_thread: Whether backward passes of the device run on autograd's thread.
    """

    name: str
    make: Callable[[], tuple[torch.nn.Module, torch.Tensor, torch.Tensor]]
    steps: int
    limit: float
    has_thread: bool = False


def mlp() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Return two linear layers, 784-128-10, and a batch of 64."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, torch.randn(64, 784), torch.randint(10, (64,))


def transformer() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Return four encoder layers of width 256 with 4 heads and a batch of 8 sequences of 64."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, nhead=4, dim_feedforward=1024, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False)
    # Cross entropy takes one row of logits per token.
    model = nn.Sequential(encoder, nn.Linear(256, 10), nn.Flatten(0, 1))
    return model, torch.randn(8, 64, 256), torch.randint(10, (8 * 64,))


WORKLOADS: Final = (
    Workload("2-layer MLP", mlp, steps=4000, limit=1.10),
    Workload("4-layer transformer", transformer, steps=400, limit=1.02),
    Workload("2-layer MLP, autograd's thread", mlp, steps=4000, limit=1.40, has_thread=True),
)


def make_step(workload: Workload, device: str) -> Callable[[], object]:
    """Return a function that runs one training step of a workload on a device."""
    import habana_frameworks.torch.core as htcore
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    model, batch, targets = workload.make()
    model, batch, targets = model.to(device), batch.to(device), targets.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    mark_step = htcore.mark_step if device == "hpu" else lambda: None

    def step() -> None:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(batch), targets)
        with torch.autograd.set_multithreading_enabled(workload.has_thread):
            loss.backward()
        mark_step()
        optimizer.step()
        mark_step()

    return step


def measure(workload: Workload) -> gates.Gate:
    """Measure steps of both kinds alternately."""
    reference, step = (make_step(workload, device) for device in ("cpu", "hpu"))
    name = f"{workload.name}, of the CPU's"
    return gates.measure_steps(name, workload.limit, step, reference, most=workload.steps)


def main() -> int:
    """Measure every workload, and print a row for each."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

    import hpu_sim

    # A machine of its own, because other processes may hold every device of the default one.
    with tempfile.TemporaryDirectory(prefix="hpu-sim-bench-") as folder:
        os.environ["HPU_SIM_RUNTIME_DIR"] = folder
        hpu_sim.activate()

        import torch

        # Before the first backward pass, because autograd's thread for the device keeps the number.
        torch.set_num_threads(1)
        return gates.report([measure(workload) for workload in WORKLOADS])


if __name__ == "__main__":
    sys.exit(main())
