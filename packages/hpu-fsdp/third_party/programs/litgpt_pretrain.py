"""litgpt's pretraining script with a tiny model and random tokens; `LITGPT_RESUME` resumes the latest checkpoint."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from litgpt import Config, pretrain
from litgpt.args import EvalArgs, TrainArgs
from litgpt.data import DataModule
from torch.utils.data import DataLoader


class Tokens(DataModule):  # type: ignore[misc] # litgpt is installed in its own session only.
    """Random tokens."""

    def connect(self, tokenizer: Any = None, batch_size: int = 1, max_seq_length: int = -1) -> None:
        """Set the batch size and the length of a sequence."""
        self.batch_size, self.length = batch_size, max_seq_length + 1

    def train_dataloader(self) -> Any:
        """Return 64 sequences."""
        tokens = torch.randint(64, (64, self.length), generator=torch.Generator().manual_seed(1))
        return DataLoader(tokens, batch_size=self.batch_size)  # type: ignore[arg-type] # A tensor is a dataset.

    val_dataloader = train_dataloader


def main() -> None:
    """Train 8 steps."""
    # litgpt stores the arguments of its command line.
    sys.argv[1:] = ["pythia-14m"]
    pretrain.setup(
        "pythia-14m",
        model_config=Config(
            name="tiny", block_size=16, n_layer=2, n_embd=32, n_head=2, padded_vocab_size=64, padding_multiple=64
        ),
        out_dir=Path("pretrained"),
        precision="32-true",
        data=Tokens(),
        train=TrainArgs(
            save_interval=4,
            log_interval=1,
            global_batch_size=8,
            micro_batch_size=2,
            max_tokens=8 * 8 * 16,
            max_norm=1.0,
            lr_warmup_steps=2,
        ),
        eval=EvalArgs(interval=4, max_iters=2),
        devices=2,
        logger_name="csv",
        resume="LITGPT_RESUME" in os.environ,
    )


if __name__ == "__main__":
    main()
