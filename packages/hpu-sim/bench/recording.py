"""Benchmark of the report's overhead: a training step that is recorded, against one that is not.

    python packages/hpu-sim/bench/recording.py

Each figure is the processor time of the fastest of many short rounds, because other load only makes rounds slower.
Recorded and unrecorded processes alternate. The exit code is 1 if a report makes a step longer than its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Final

#: Models, with the largest overhead of a report. In float64, each operator is an event with a line of the program.
LIMITS: Final = {"mlp": 1.3, "mlp in float64": 2.0, "transformer": 1.3}
#: Rounds per process.
ROUNDS: Final = 80


def main() -> int:
    """Measure, print a table, and compare with the limit.

    Returns:
        Exit code: 1 if the overhead of a report exceeds the limit, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5, help="processes per figure")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        model, steps = options.child
        print(json.dumps(time_steps(model, int(steps))))
        return 0

    print("processor time of a step, in milliseconds (simulated)")
    print(f"{'model':16}{'mode':8}{'unrecorded':>12}{'report':>18}")
    is_met = True
    for model, limit in LIMITS.items():
        for mode, lazy in (("eager", "0"), ("lazy", "1")):
            plain, recorded = measure(model, lazy, options.processes)
            cell = f"{1000 * recorded:10.3f} {recorded / plain:5.2f}x"
            print(f"{model:16}{mode:8}{1000 * plain:12.3f}{cell:>18}")
            is_met = is_met and recorded / plain <= limit
    print(
        f"overhead of a report: {'met' if is_met else 'missed'} ({', '.join(f'{k} {v}x' for k, v in LIMITS.items())})"
    )
    return 0 if is_met else 1


def measure(model: str, lazy: str, processes: int) -> tuple[float, float]:
    """Return the seconds per step without and with a report.

    Args:
        model: One of LIMITS.
        lazy: Value of PT_HPU_LAZY_MODE.
        processes: Processes of each.
    """
    plain = recorded = float("inf")
    for _ in range(processes):
        plain = min(plain, run_child(model, lazy, is_recorded=False))
        recorded = min(recorded, run_child(model, lazy, is_recorded=True))
    return plain, recorded


def run_child(model: str, lazy: str, *, is_recorded: bool) -> float:
    """Return the seconds per step in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": lazy, "HPU_SIM_RUNTIME_DIR": folder}
        if is_recorded:
            environment["HPU_SIM_REPORT"] = folder
        command = [sys.executable, __file__, "--child", model, "4" if model == "transformer" else "24"]
        result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - this script
        return float(json.loads(result.stdout))


def time_steps(model: str, steps: int) -> float:
    """Train on the simulated device, and return the seconds per step of the fastest round.

    A step copies a batch to the device, runs forward, backward and the optimizer, and reads the loss.

    Args:
        model: One of LIMITS.
        steps: Steps per round.
    """
    import torch

    torch.set_num_threads(1)
    import habana_frameworks.torch.core as htcore

    network, batches = make(model)
    network = network.to("hpu")
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)

    def train() -> None:
        for step in range(steps):
            inputs = batches[step % len(batches)].to("hpu")
            loss = network(inputs).pow(2).mean()
            loss.backward()
            htcore.mark_step()
            optimizer.step()
            htcore.mark_step()
            optimizer.zero_grad()
            loss.item()

    train()
    fastest = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        train()
        fastest = min(fastest, (time.process_time() - begin) / steps)
    return fastest


def make(model: str) -> tuple[Any, list[Any]]:
    """Return a model and its batches: two linear layers on (32, 64), or four encoder layers on (8, 32, 64).

    In float64 every operator emits an event, because a card computes in another dtype.
    """
    import torch
    from torch import nn

    if model != "transformer":
        dtype = torch.float64 if model == "mlp in float64" else torch.float32
        network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(dtype)
        return network, [torch.randn(32, 64, dtype=dtype) for _ in range(8)]
    layer = nn.TransformerEncoderLayer(64, nhead=4, dim_feedforward=128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False), [torch.randn(8, 32, 64)] * 8


if __name__ == "__main__":
    raise SystemExit(main())
