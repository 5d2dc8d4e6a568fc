"""Training of a small transformer with four faults, for the test of the profiler's findings.

Rank 1 sleeps in each step, the dataset sleeps for each sample, each step reads the loss, and the length of a batch
changes from step to step. Validation runs between recorded training steps.
"""

from __future__ import annotations

import sys
import time
import warnings

import torch
from lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hpu_profiler import HPUProfiler

SLOW_RANK = 1
# Both are much longer than the work of a step.
RANK_DELAY_IN_SECONDS = 0.4
SAMPLE_DELAY_IN_SECONDS = 0.05
TOKENS = 64


class SlowTokens(Dataset[Tensor]):
    """Random tokens that are slow to load."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(SAMPLE_DELAY_IN_SECONDS)
        return torch.randint(0, TOKENS, (24,), generator=torch.Generator().manual_seed(index))


class Language(LightningModule):
    """Transformer with one layer that predicts its input."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 32)
        self.layer = nn.TransformerEncoderLayer(32, nhead=2, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, TOKENS)
        self.total_loss = 0.0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Return the loss of a batch whose length depends on its number."""
        loss = self.loss(self.augment(batch[:, : 12 + 2 * batch_idx]))
        self.total_loss += loss.item()
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        """Log the loss."""
        self.log("loss", self.loss(batch), sync_dist=True)

    def augment(self, batch: Tensor) -> Tensor:
        """Return the batch, on one rank after a delay."""
        if self.global_rank == SLOW_RANK:
            time.sleep(RANK_DELAY_IN_SECONDS)
        return batch

    def loss(self, batch: Tensor) -> Tensor:
        """Return the loss of a batch."""
        scores = self.head(self.layer(self.embedding(batch)))
        return nn.functional.cross_entropy(scores.flatten(0, 1), batch.flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    """Train for six steps, of which the profiler records the third to the fifth."""
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    profiler = HPUProfiler(dirpath=sys.argv[1], filename="summary", record_shapes=True, with_stack=True)
    trainer = Trainer(
        accelerator="hpu",
        profiler=profiler,
        max_epochs=1,
        limit_train_batches=6,
        val_check_interval=4,
        limit_val_batches=2,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(Language(), DataLoader(SlowTokens(), batch_size=2), DataLoader(SlowTokens(), batch_size=2))


if __name__ == "__main__":
    main()
