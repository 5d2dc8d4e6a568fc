"""Program that trains wide layers, with what advice may change as its arguments."""

from __future__ import annotations

import argparse
from typing import Any, Final

import torch
from lightning import LightningModule, Trainer
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

# Rows on the device per sample.
_ROWS: Final = 10_000


class _Block(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = inputs + self.down(torch.tanh(self.up(inputs)))
        return outputs


class _Module(LightningModule):
    def __init__(self, hidden: int, recomputed: int) -> None:
        super().__init__()
        self.first = nn.Linear(1, hidden)
        self.blocks = nn.ModuleList(_Block(hidden) for _ in range(4))
        self.recomputed = recomputed

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        del batch_idx
        hidden = self.first(batch[0]).repeat_interleave(_ROWS, 0)
        for index, block in enumerate(self.blocks):
            hidden = checkpoint(block, hidden, use_reentrant=False) if index < self.recomputed else block(hidden)
        loss: torch.Tensor = hidden.mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--checkpoint", type=int, default=0)
    given = parser.parse_args()
    loader = DataLoader(TensorDataset(torch.rand(given.batch_size * 8, 1)), batch_size=given.batch_size)
    trainer = Trainer(precision=given.precision, strategy=given.strategy, logger=False)
    trainer.fit(_Module(given.hidden, given.checkpoint), loader)


if __name__ == "__main__":
    main()
