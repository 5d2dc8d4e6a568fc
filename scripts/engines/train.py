"""Train a small model as the ranks of any engine; each rank writes FOLDER/rank-N.json.

    python train.py FOLDER --devices 2 [--kill RANK] [--until FILE]

It resumes from the last checkpoint in FOLDER. With `--kill`, that rank kills itself once, in the third epoch. With
`--until`, training ends with the epoch in which that file exists. Each start of rank 0 is a line of FOLDER/starts.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hpu_ddp import HPUDDPStrategy

KILL_EPOCH = 2


class Model(LightningModule):
    """Two layers, with dropout, whose random numbers a resumed run must continue."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss, and log its mean over ranks."""
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.layers(inputs), targets)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer with state."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


class KillOnce(Callback):
    """Kill one rank, unless a file says that it was killed already.

    Attributes:
        first_epoch: Epoch in which this process started.
    """

    def __init__(self, rank: int | None, marker: Path) -> None:
        self._rank = rank
        self._marker = marker
        self.first_epoch = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember the epoch."""
        self.first_epoch = trainer.current_epoch

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Kill this process."""
        is_moment = trainer.current_epoch == KILL_EPOCH and batch_idx == 1
        if is_moment and trainer.global_rank == self._rank and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Until(Callback):
    """End training when a file exists; rank 0 writes a line for each start."""

    def __init__(self, end: Path | None, starts: Path) -> None:
        self._end = end
        self._starts = starts

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the number of ranks and the epoch."""
        if trainer.is_global_zero:
            with self._starts.open("a") as file:
                file.write(f"{trainer.world_size} {trainer.current_epoch}\n")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End training on all ranks."""
        if self._end is not None:
            trainer.should_stop = trainer.strategy.reduce_boolean_decision(self._end.exists(), all=False)


def data() -> DataLoader[tuple[Tensor, ...]]:
    """Return the same data on every rank."""
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(2))
    return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=4)


def main() -> None:
    """Train, and write the loss, a digest of the weights, and the epoch in which this process started."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--kill", type=int)
    parser.add_argument("--until", type=Path)
    parser.add_argument("--timeout", type=int, help="seconds after which a rank that is cut off counts as lost")
    options = parser.parse_args()
    torch.manual_seed(3)
    killer = KillOnce(options.kill, options.folder / "killed")
    trainer = Trainer(
        accelerator="hpu",
        strategy=HPUDDPStrategy(timeout=timedelta(seconds=options.timeout)) if options.timeout else "auto",
        devices=options.devices,
        # torchrun says with how many machines it has started the ranks.
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        max_epochs=options.epochs if options.until is None else -1,
        callbacks=[
            killer,
            Until(options.until, options.folder / "starts.txt"),
            ModelCheckpoint(dirpath=options.folder / "checkpoints", save_last=True),
        ],
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(Model(), data(), ckpt_path="last", weights_only=False)
    weights = b"".join(weight.cpu().numpy().tobytes() for weight in trainer.lightning_module.state_dict().values())
    result = {
        # Missing where the checkpoint was the last one.
        "loss": float(trainer.callback_metrics.get("loss", "nan")),
        "weights": hashlib.sha256(weights).hexdigest()[:12],
        "first_epoch": killer.first_epoch,
        "modules": os.environ.get("HABANA_VISIBLE_MODULES"),
    }
    (options.folder / f"rank-{trainer.global_rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
