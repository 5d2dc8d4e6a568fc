"""Training of a tiny module with DDP, logging, validation and checkpoints; `measure.py` starts it.

Each rank appends samples of its process to rank-N.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import HPUAccelerator
from hpu_ddp import HPUDDPStrategy

_BATCH_SIZE: Final = 8


class Sampler(pl.Callback):
    """Callback that samples this process.

    Args:
        interval: Steps from one sample to the next.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Write a sample."""
        if trainer.global_step % self._interval:
            return
        digest = hashlib.sha256()
        for parameter in pl_module.parameters():
            digest.update(parameter.detach().cpu().numpy().tobytes())
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        sample = {
            "step": trainer.global_step,
            "host KiB": pages * os.sysconf("SC_PAGE_SIZE") / 1024,
            "card KiB": torch.hpu.memory_allocated() / 1024,  # type: ignore[attr-defined] # The bridge adds it.
            "files": len(list(Path("/proc/self/fd").iterdir())),
            "threads": len(list(Path("/proc/self/task").iterdir())),
            "weights": digest.hexdigest(),
        }
        with Path(f"rank-{trainer.global_rank}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(sample) + "\n")


class Module(pl.LightningModule):
    """Linear layer with Adam."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def training_step(self, batch: Any) -> torch.Tensor:
        """Return and log the loss."""
        loss: torch.Tensor = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any) -> None:
        """Log the loss of all ranks."""
        self.log("val", self.layer(batch[0]).square().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.001)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--every", type=int, help="steps from one validation and checkpoint to the next")
    parser.add_argument("--sample-every", type=int)
    options = parser.parse_args()
    pl.seed_everything(1)
    trainer = pl.Trainer(
        accelerator=HPUAccelerator(),
        strategy=HPUDDPStrategy(),
        devices=options.ranks,
        max_steps=options.steps,
        val_check_interval=options.every,
        check_val_every_n_epoch=None,
        logger=CSVLogger("logs"),
        callbacks=[ModelCheckpoint("checkpoints", every_n_train_steps=options.every), Sampler(options.sample_every)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = torch.randn(options.every * _BATCH_SIZE * options.ranks, 16)
    validation = DataLoader(TensorDataset(data[:64]))
    trainer.fit(Module(), DataLoader(TensorDataset(data), batch_size=_BATCH_SIZE), validation)


if __name__ == "__main__":
    main()
