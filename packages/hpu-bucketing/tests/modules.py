"""Data and modules of the tests."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from hpu_bucketing import BucketBatchSampler, BucketCollate, BucketDataLoader, BucketPlan
from hpu_core import frameworks
from hpu_testing.modules import make_trainer

_pytorch: Any = frameworks.current().pytorch()

PLAN = BucketPlan.from_boundaries([4, 8, 16])
LENGTHS = [1 + (7 * index) % 16 for index in range(40)]
VOCABULARY = 32


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Samples of random tokens, with their index."""

    def __init__(self, lengths: list[int] | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        self.lengths = LENGTHS if lengths is None else lengths
        self.rows = [torch.randint(1, VOCABULARY, (length,), generator=generator) for length in self.lengths]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "index": torch.tensor(index)}


class Embeddings(_pytorch.LightningModule):  # type: ignore[misc] # chosen at run time
    """Classifier of mean embeddings with batch normalization and dropout, which notes the samples that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, 8)
        self.body = torch.nn.Sequential(
            torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, VOCABULARY)
        )
        self.seen: list[list[int]] = []
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weights = mask.unsqueeze(-1).float()
        mean = (self.embedding(tokens) * weights).sum(dim=1) / weights.sum(dim=1)
        logits: torch.Tensor = self.body(mean)
        return logits

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        self.seen.append(batch["index"].tolist())
        self.shapes.append(tuple(batch["input_ids"].shape))
        logits = self(batch["input_ids"], batch["attention_mask"])
        loss = torch.nn.functional.cross_entropy(logits, batch["input_ids"][:, 0])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
        self(batch["input_ids"], batch["attention_mask"])

    def predict_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        return batch["index"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class StoppedError(Exception):
    """The training was stopped."""


class Stop(_pytorch.Callback):  # type: ignore[misc] # chosen at run time
    """Callback that saves a checkpoint after a number of batches, and stops."""

    def __init__(self, batches: int, path: Path) -> None:
        self.batches = batches
        self.path = path

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.batches:
            trainer.save_checkpoint(self.path)
            raise StoppedError


def loader(batch_size: int = 4, **options: Any) -> BucketDataLoader[Any]:
    """Return a loader of `Tokens`."""
    sampler_options = {name: options.pop(name) for name in ("shuffle", "seed", "drop_last") if name in options}
    sampler = BucketBatchSampler(LENGTHS, PLAN, batch_size=batch_size, **sampler_options)
    return BucketDataLoader(Tokens(), sampler, collate_fn=BucketCollate(PLAN), **options)


def trainer(folder: Any, **options: Any) -> Any:
    """Return a Trainer on the CPU."""
    defaults = {"accelerator": "cpu", "devices": 1, "max_epochs": 2, "default_root_dir": folder}
    return make_trainer(**{**defaults, **options})
