"""Training of a small module in which one rank fails; `measure.py` starts it.

Writes the time of the failure, on the system's monotonic clock, to FAULT_FILE.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import lightning.fabric
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import HPUAccelerator
from hpu_core.distributed.heartbeat_exchange import HeartbeatExchange

STEPS = 40
FAULT_STEP = 5


def note_time() -> None:
    """Write the time to FAULT_FILE."""
    Path(os.environ["FAULT_FILE"]).write_text(str(time.monotonic()), encoding="ascii")


def fail_during_training(fault: str) -> None:
    """Fail on this rank."""
    note_time()
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "raised":
        raise ValueError("an error of the user's")
    elif fault == "hung":
        while True:
            pass
    elif fault in {"cut off", "slow link"}:
        command = os.environ["CUT" if fault == "cut off" else "SLOW_DOWN"]
        subprocess.run(shlex.split(command), check=True)  # noqa: S603 - the command of measure.py.


def fail_before_training(fault: str) -> None:
    """Take the port, or have the watchdog's thread raise later."""
    if fault == "port taken":
        other = socket.create_server(("", int(os.environ["MASTER_PORT"])))
        # Closed by the end of the process.
        other.detach()
        note_time()
    elif fault == "watchdog error":
        mock.patch.object(HeartbeatExchange, "exchange", side_effect=_raise_later()).start()


def _raise_later() -> Any:
    calls = iter(range(3))

    def exchange(*_: object) -> None:
        if next(calls, None) is None:
            raise ZeroDivisionError("an error of the watchdog's")

    return exchange


class Module(pl.LightningModule):
    """Linear layer, whose training fails on one rank."""

    def __init__(self, fault: str, rank: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)
        self.fault, self.rank = fault, rank

    def training_step(self, batch: Any) -> torch.Tensor:
        """Return the loss, or fail first."""
        if self.global_rank == self.rank and self.global_step == FAULT_STEP:
            if self.fault == "left":
                note_time()
                self.trainer.fit_loop.epoch_loop.max_steps = FAULT_STEP + 1
            fail_during_training(self.fault)
        loss: torch.Tensor = self.layer(batch[0].to(self.layer.weight.dtype)).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train_with_trainer(strategy: Any, options: argparse.Namespace) -> None:
    """Train with Lightning's Trainer."""
    trainer = pl.Trainer(
        accelerator=HPUAccelerator(),
        strategy=strategy,
        devices=options.devices,
        num_nodes=options.num_nodes,
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(options.fault, options.rank), DataLoader(TensorDataset(torch.randn(40_000, 16)), batch_size=8))


def train_with_fabric(strategy: Any, options: argparse.Namespace) -> None:
    """Train with Fabric."""
    fabric = lightning.fabric.Fabric(
        accelerator=HPUAccelerator(), strategy=strategy, devices=options.devices, num_nodes=options.num_nodes
    )
    fabric.launch()
    layer = torch.nn.Linear(16, 4)
    module, optimizer = fabric.setup(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    for step in range(STEPS):
        if fabric.global_rank == options.rank and step == FAULT_STEP:
            if options.fault == "left":
                note_time()
                return
            fail_during_training(options.fault)
        fabric.backward(module(torch.randn(8, 16).to(fabric.device)).square().mean())
        optimizer.step()
        optimizer.zero_grad()


def make_strategy(options: argparse.Namespace) -> Any:
    """Return the strategy that the options name."""
    timeout = timedelta(seconds=options.timeout)
    if options.strategy == "ddp":
        from hpu_ddp import FabricHPUDDPStrategy, HPUDDPStrategy

        return (HPUDDPStrategy if options.api == "Trainer" else FabricHPUDDPStrategy)(timeout=timeout)
    if options.strategy == "fsdp":
        from hpu_fsdp import FabricHPUFSDPStrategy, HPUFSDPStrategy

        return (HPUFSDPStrategy if options.api == "Trainer" else FabricHPUFSDPStrategy)(timeout=timeout)
    from hpu_deepspeed import FabricHPUDeepSpeedStrategy, HPUDeepSpeedStrategy

    kind = HPUDeepSpeedStrategy if options.api == "Trainer" else FabricHPUDeepSpeedStrategy
    return kind(stage=2, timeout=timeout, process_group_backend=None)


def main() -> None:
    """Train, and print what is left of the strategy afterwards."""
    # The bridge sets its own at its import.
    variables = set(os.environ)
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=["ddp", "deepspeed", "fsdp"], default="ddp")
    parser.add_argument("--api", choices=["Trainer", "Fabric"], default="Trainer")
    parser.add_argument("--fault", default="none")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60)
    options = parser.parse_args()
    rank = int(os.environ.get("NODE_RANK", "0")) * options.devices + int(os.environ.get("LOCAL_RANK", "0"))
    if rank == 0 and options.fault == "absent":
        note_time()
    if rank == options.rank:
        fail_before_training(options.fault)
    (train_with_trainer if options.api == "Trainer" else train_with_fabric)(make_strategy(options), options)
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("hpu-")]
    left = set(os.environ) & {"HLS_MODULE_ID", "ID", "HPU_LAUNCHER_PID"} - variables
    if options.api == "Trainer" and (threads or left):
        os.write(1, f"LEFT {threads} {left}\n".encode())
    os.write(1, b"FINISHED\n")


if __name__ == "__main__":
    main()
