"""Train the digit classifier of train_digits.py in bf16 mixed precision, and in 32 bit to compare.

On a card, or on a simulated card:

    python examples/train_digits_bf16.py
    hpu-sim run examples/train_digits_bf16.py

The ops of ops_bf16_mnist.txt, next to this script, run in bf16, as in scripts for HMP (Habana Mixed Precision).
`--default-lists` selects hpu-precision's lists. `HPU_SIM_RELEASE=1.11.0` before the second command selects a release
with HMP.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import torch
from lightning import Trainer
from rich.console import Console
from rich.table import Table
from train_digits import EPOCHS, DigitClassifier, digits

from hpu_core import HPUAccelerator, bridge
from hpu_precision import HPUPrecisionPlugin

LISTS = Path(__file__).parent
REQUIRED_ACCURACY = 0.95
# How much the accuracies in bf16 and in 32 bit may differ.
TOLERANCE = 0.01


def train(plugin: HPUPrecisionPlugin) -> float:
    """Train in a precision and return the accuracy on the test data."""
    torch.manual_seed(0)
    training, test_data = digits()
    trainer = Trainer(
        accelerator=HPUAccelerator(),
        devices=1,
        plugins=[plugin],
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    model = DigitClassifier()
    trainer.fit(model, training)
    (metrics,) = trainer.test(model, test_data, verbose=False)
    return float(metrics["accuracy"])


def main() -> int:
    """Train twice and compare.

    Returns:
        0, or 1 if the accuracy in bf16 is too low, or not that of 32 bit.
    """
    parser = argparse.ArgumentParser(description="Train a classifier of digits in bf16 and in 32 bit.")
    parser.add_argument("--default-lists", action="store_true", help="use hpu-precision's lists of ops")
    # The data are in memory, so workers would not load them faster.
    warnings.filterwarnings("ignore", message=".*does not have many workers")

    if parser.parse_args().default_lists:
        plugin = HPUPrecisionPlugin("bf16-mixed")
    else:
        plugin = HPUPrecisionPlugin(
            precision=16,
            opt_level="O1",
            verbose=False,
            bf16_file_path=LISTS / "ops_bf16_mnist.txt",
            fp32_file_path=LISTS / "ops_fp32_mnist.txt",
        )
    mixed, full = train(plugin), train(HPUPrecisionPlugin(32))

    simulated = " (simulated)" if bridge.is_simulated() else ""
    table = Table(title=f"Held-out accuracy{simulated}", show_header=False)
    table.add_row(plugin.precision, f"{mixed:.2%}")
    table.add_row("32-true", f"{full:.2%}")
    Console().print(table)
    if mixed < REQUIRED_ACCURACY or abs(mixed - full) > TOLERANCE:
        print(f"bf16 must reach {REQUIRED_ACCURACY:.0%} and be within {TOLERANCE:.0%} of 32 bit", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
