"""Profile the training of train_digits.py on all cards of a machine.

On a machine with cards, or on simulated cards:

    python examples/profile_digits.py traces
    hpu-sim run --devices 2 examples/profile_digits.py traces

Each rank writes a trace and a summary to the folder `traces`. This compares them:

    hpu-profiler report traces --html report.html

`--slow-rank 1` slows down the data loading of one rank, as a slow disk would, to show the report of a straggler.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

from lightning import LightningModule, Trainer
from train_digits import DigitClassifier, digits

from hpu_profiler import HPUProfiler

# Delay of each batch of the slow rank, much longer than a step.
DELAY_IN_SECONDS = 0.3


class SlowLoading(DigitClassifier):
    """Classifier with delayed batches on one rank.

    Args:
        rank: The rank; -1 for none.
        profiler: Profiler that records the delay as an action.
    """

    def __init__(self, rank: int, profiler: HPUProfiler) -> None:
        super().__init__()
        self.slow_rank = rank
        self.profiler = profiler

    def on_before_batch_transfer(self, batch: list[object], dataloader_idx: int) -> list[object]:
        """Return the batch, after a delay on the slow rank."""
        if self.global_rank == self.slow_rank:
            with self.profiler.profile("slow_disk"):
                time.sleep(DELAY_IN_SECONDS)
        return batch


def main() -> None:
    """Train for six steps, of which the profiler records the third to the fifth."""
    parser = argparse.ArgumentParser(description="Profile the training of a classifier of digits.")
    parser.add_argument("traces", type=Path, help="the folder for traces and summaries")
    parser.add_argument("--slow-rank", type=int, default=-1, help="a rank to make slow")
    arguments = parser.parse_args()
    # The data are in memory, so workers would not load them faster.
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
