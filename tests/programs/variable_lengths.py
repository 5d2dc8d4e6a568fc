"""Train a small transformer on text of variable length, with and without buckets, on simulated cards.

Each rank writes a JSON file with its compilations, padding, times and the loss of each sample. The learning rate is 0,
so that the loss of a sample does not depend on the batches before.

The text is Python's own: the topics of `help()`, by paragraphs.

Usage: `hpu-sim run --devices 2 variable_lengths.py --devices 2 --buckets FOLDER`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, Final

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from hpu_bucketing import (
    BucketBatchSampler,
    BucketCollate,
    BucketDataLoader,
    BucketPlan,
    HPUGraphs,
    HPUWarmup,
    RecompilationMonitor,
)
from hpu_core import bridge, frameworks

_pytorch: Any = frameworks.current().pytorch()

_LONGEST: Final = 512
_SAMPLES: Final = 384
_BATCH_SIZE: Final = 8
_WIDTH: Final = 64


class Paragraphs(Dataset[dict[str, torch.Tensor]]):
    """Paragraphs of text as bytes, with their index."""

    def __init__(self) -> None:
        texts = [part.encode()[:_LONGEST] for topic in sorted(topics) for part in topics[topic].split("\n\n")]
        rows = [list(text) for text in texts if len(text) > 1]
        # Every so many, so that the sample covers all topics.
        step = len(rows) // _SAMPLES
        self.rows = [torch.tensor(row) for row in rows[::step][:_SAMPLES]]
        self.lengths = [len(row) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "index": torch.tensor(index)}


class Layer(torch.nn.Module):
    """Layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(_WIDTH) for _ in range(2))
        self.attention = torch.nn.Linear(_WIDTH, 3 * _WIDTH)
        self.projection = torch.nn.Linear(_WIDTH, _WIDTH)
        self.feed_forward = torch.nn.Sequential(
            torch.nn.Linear(_WIDTH, 4 * _WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * _WIDTH, _WIDTH)
        )

    def forward(self, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = value.shape
        parts = self.attention(self.norms[0](value)).view(batch, length, 3, 4, _WIDTH // 4).permute(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].transpose(-1, -2) / (_WIDTH // 4) ** 0.5
        weights = torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)
        attended = (weights @ parts[2]).transpose(1, 2).reshape(batch, length, _WIDTH)
        value = value + self.projection(attended)
        result: torch.Tensor = value + self.feed_forward(self.norms[1](value))
        return result


class Network(torch.nn.Module):
    """Transformer that returns logits of the next byte."""

    causal: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(256, _WIDTH)
        self.positions = torch.nn.Parameter(torch.randn(_LONGEST, _WIDTH) / 10)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(2))
        self.head = torch.nn.Linear(_WIDTH, 256)
        self.register_buffer("causal", torch.ones(_LONGEST, _LONGEST, dtype=torch.bool).tril(), persistent=False)

    def forward(self, tokens: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        value = self.embedding(tokens) + self.positions[:length]
        mask = self.causal[:length, :length] & present[:, None, None, :]
        for layer in self.layers:
            value = layer(value, mask)
        logits: torch.Tensor = self.head(value)
        return logits


class Transformer(_pytorch.LightningModule):  # type: ignore[misc] # chosen at run time
    """Model of the next byte, which notes the loss of each sample."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = Network()
        self.samples: list[tuple[torch.Tensor, torch.Tensor]] = []

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        tokens, present = batch["input_ids"], batch["attention_mask"].bool()
        logits = self.network(tokens, present)[:, :-1].transpose(1, 2)
        losses = functional.cross_entropy(logits, tokens[:, 1:], reduction="none")
        counted = present[:, 1:].float()
        each = (losses * counted).sum(dim=1) / counted.sum(dim=1)
        self.samples.append((batch["index"], each.detach()))
        return each.mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Measure(_pytorch.Callback):  # type: ignore[misc] # chosen at run time
    """Callback that measures each step: compilations, seconds, tokens and their padding."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        pl_module.samples.clear()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        # The process's own time: cards of one machine share its processors.
        self.start = time.process_time()
        self.compiled = bridge.metric("graph_compilation")["TotalNumber"]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        compiled: Any = bridge.metric("graph_compilation")["TotalNumber"]
        self.rows.append(
            {
                "compilations": compiled - self.compiled,
                "seconds": time.process_time() - self.start,
                "length": batch["input_ids"].shape[1],
                "padded_tokens": batch["input_ids"].numel(),
                # On the host, after the measurement.
                "tokens": int(batch["attention_mask"].sum().item()),
            }
        )


def pad_to_longest(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return a batch padded to its longest sample."""
    rows = torch.nn.utils.rnn.pad_sequence([sample["input_ids"] for sample in samples], batch_first=True)
    lengths = torch.tensor([len(sample["input_ids"]) for sample in samples])
    mask = (torch.arange(rows.shape[1]) < lengths[:, None]).long()
    return {"input_ids": rows, "attention_mask": mask, "index": torch.stack([sample["index"] for sample in samples])}


def main() -> None:
    """Train an epoch and write the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--buckets", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1, help="batches per step of the optimizer")
    parser.add_argument("--graphs", action="store_true", help="run the network as HPU graphs")
    options = parser.parse_args()
    data = Paragraphs()
    measure, monitor = Measure(), RecompilationMonitor()
    loader: DataLoader[Any]
    if options.buckets:
        plan = BucketPlan.from_lengths(data.lengths, _BATCH_SIZE, align=64, ranks=options.devices)
        sampler = BucketBatchSampler(data.lengths, plan, batch_size=_BATCH_SIZE)
        loader = BucketDataLoader(data, sampler, collate_fn=BucketCollate(plan))
        callbacks = [HPUWarmup(progress_bar=False), monitor, measure]
    else:
        loader = DataLoader(data, batch_size=_BATCH_SIZE, shuffle=True, drop_last=True, collate_fn=pad_to_longest)
        callbacks = [measure]
    if options.graphs:
        callbacks.insert(0, HPUGraphs("network"))
    trainer = _pytorch.Trainer(
        accelerator="hpu",
        devices=options.devices,
        max_epochs=1,
        accumulate_grad_batches=options.accumulate,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    model = Transformer()
    trainer.fit(model, loader)
    pairs = [
        (index, loss)
        for indices, losses in model.samples
        for index, loss in zip(indices.cpu(), losses.cpu(), strict=True)
    ]
    result = {
        "rank": trainer.global_rank,
        "steps": measure.rows,
        "losses": {int(index): float(loss) for index, loss in pairs},
        "violations": monitor.violations,
        "boundaries": list(plan.boundaries) if options.buckets else None,
    }
    (options.folder / f"rank-{trainer.global_rank}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
