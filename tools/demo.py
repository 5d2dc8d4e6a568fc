"""Demo of the README: examples/train_digits.py, and its checkpoint in a new model.

It prints a digest of each rank's weights. Run it on cards, or on simulated ones, where a report counts what is slow
on a card:

    python tools/demo.py
    hpu-sim run --devices 2 --report demo.html tools/demo.py
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_core import bridge, device_name

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from train_digits import DigitClassifier, digits, train

if TYPE_CHECKING:
    from lightning import LightningModule, Trainer

REQUIRED_ACCURACY = 0.95


def rank_line(trainer: Trainer, model: LightningModule) -> str:
    """Return this rank's device and the digest of its weights, which is the same on all ranks."""
    weights = b"".join(weight.cpu().numpy().tobytes() for weight in model.state_dict().values())
    device = f"{device_name()} (simulated)" if bridge.is_simulated() else str(device_name())
    digest = hashlib.sha256(weights).hexdigest()[:12]
    return f"rank {trainer.global_rank} of {trainer.world_size} on {device}: weights {digest}"


def reload(trainer: Trainer) -> float:
    """Save a checkpoint, load it into a new model and return that model's accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        # Every rank has a folder, and all use rank 0's. The evaluation ends after all ranks have read the checkpoint,
        # because it averages the accuracy over them.
        checkpoint = Path(trainer.strategy.broadcast(folder)) / "digits.ckpt"
        trainer.save_checkpoint(checkpoint)
        (metrics,) = trainer.test(DigitClassifier(), digits()[1], ckpt_path=checkpoint, verbose=False)
    return float(metrics["accuracy"])


def main() -> int:
    """Run the example and check what it has trained.

    Returns:
        0, or 1 if the accuracy is too low or changes with the reload.
    """
    # The data are in memory, so workers would not load them faster.
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    # The test images divide evenly among the cards.
    warnings.filterwarnings("ignore", message=".*Using `DistributedSampler` with the dataloaders")
    trainer, model = train(enable_checkpointing=False, enable_model_summary=False)
    accuracy = float(trainer.callback_metrics["accuracy"])
    reloaded_accuracy = reload(trainer)
    print(rank_line(trainer, model), flush=True)
    if reloaded_accuracy != accuracy or accuracy < REQUIRED_ACCURACY:
        print(
            f"the accuracy must be at least {REQUIRED_ACCURACY:.0%} and stay, got {accuracy:.1%}, and "
            f"{reloaded_accuracy:.1%} after reloading the checkpoint",
            file=sys.stderr,
        )
        return 1
    if trainer.is_global_zero:
        print(f"test accuracy {accuracy:.1%}, the same after reloading the checkpoint")
    return 0


if __name__ == "__main__":
    sys.exit(main())
