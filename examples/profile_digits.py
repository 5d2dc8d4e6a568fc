"""Profile the training of train_digits.py on all cards of a machine, and look at where the time goes.

On a machine with cards, or without any on simulated ones:

    python examples/profile_digits.py traces
    hpu-sim run --devices 2 examples/profile_digits.py traces

Each rank then has a trace and a summary in the folder `traces`, and

    hpu-profiler report traces --html report.html

compares them. `--slow-rank 1` makes one rank slower at loading data, as a machine with a tired disk would, to see what
the report says of that.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

from lightning import LightningModule, Trainer
from train_digits import DigitClassifier, digits

from hpu_profiler import HPUProfiler

# Of a batch, for the rank that is made slow: many times what the step itself takes.
DELAY_IN_SECONDS = 0.3


class SlowLoading(DigitClassifier):
    """The classifier, to which one rank's batches come late.

    Args:
        rank: The rank; -1 for none.
        profiler: Where the delay is noted, as an action of its own.
    """

    def __init__(self, rank: int, profiler: HPUProfiler) -> None:
        super().__init__()
        self.slow_rank = rank
        self.profiler = profiler

    def on_before_batch_transfer(self, batch: list[object], dataloader_idx: int) -> list[object]:
        """Return the batch, late."""
        if self.global_rank == self.slow_rank:
            with self.profiler.profile("tired_disk"):
                time.sleep(DELAY_IN_SECONDS)
        return batch


def main() -> None:
    """Train a few steps, the third to the fifth of which are recorded."""
    parser = argparse.ArgumentParser(description="Profile the training of a classifier of digits.")
    parser.add_argument("traces", type=Path, help="the folder for traces and summaries")
    parser.add_argument("--slow-rank", type=int, default=-1, help="a rank to make slow")
    arguments = parser.parse_args()
    # The data lie in memory already, so Lightning's advice to load them in other processes does not apply.
    warnings.filterwarnings("ignore", message=".*does not have many workers")

    profiler = HPUProfiler(dirpath=arguments.traces, filename="summary", profile_memory=True)
    trainer = Trainer(
        accelerator="hpu",
        profiler=profiler,
        max_steps=6,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    model: LightningModule = SlowLoading(arguments.slow_rank, profiler)
    trainer.fit(model, digits()[0])


if __name__ == "__main__":
    main()
