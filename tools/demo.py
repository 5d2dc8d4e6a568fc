"""Demo of the README: examples/train_digits.py, with checks and counts.

It reloads a checkpoint, and prints each rank's weights and what a training step would cost on a card. Run it on
cards, or on simulated ones:

    python tools/demo.py
    hpu-sim run --devices 2 tools/demo.py

`PT_HPU_LAZY_MODE=1` before either command selects lazy mode, in which a training step is two graphs.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table

from hpu_core import bridge, device_name, is_lazy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from train_digits import BATCH_SIZE, DigitClassifier, digits, train

REQUIRED_ACCURACY = 0.95


class StepTimer(Callback):
    """Timer of the training steps of all epochs but the first, in which a card compiles its graphs.

    Attributes:
        steps: Number of timed steps of this rank.
        seconds: Time of these steps.
        counts: The simulator's counters for them on this rank; empty on a card.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0
        self.counts: Counter[str] = Counter()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the timer when the card is idle."""
        bridge.synchronize()
        self._before = simulator_counts()
        self._start = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the epoch, unless it is the first."""
        after = simulator_counts()  # Before the next line, which is a host sync.
        bridge.synchronize()
        if trainer.current_epoch > 0:
            self.steps += int(trainer.num_training_batches)
            self.seconds += time.perf_counter() - self._start
            self.counts.update(after - self._before)


def simulator_counts() -> Counter[str]:
    """Return the simulator's counters, which are empty on a card."""
    if not bridge.is_simulated():
        return Counter()
    import hpu_sim

    return Counter(hpu_sim.stats())


def device() -> str:
    """Return the card's name, marked if it is simulated."""
    return f"{device_name()} (simulated)" if bridge.is_simulated() else str(device_name())


def rank_line(trainer: Trainer, timer: StepTimer, model: LightningModule) -> str:
    """Return this rank's throughput and the digest of its weights, which is the same on all ranks."""
    weights = b"".join(weight.cpu().numpy().tobytes() for weight in model.state_dict().values())
    images = timer.steps * BATCH_SIZE
    return (
        f"rank {trainer.global_rank} of {trainer.world_size} on {device()}: {images / timer.seconds:,.0f} images/s in "
        f"{timer.steps} steps, weights {hashlib.sha256(weights).hexdigest()[:12]}"
    )


def report(timer: StepTimer, devices: int, accuracy: float) -> Table:
    """Return the results as a table."""
    simulated = " (simulated)" if bridge.is_simulated() else ""
    images = devices * timer.steps * BATCH_SIZE
    table = Table(title="Handwritten digits", show_header=False)
    table.add_row("device", f"{devices} x {device()}" if devices > 1 else device())
    table.add_row("mode", "lazy" if is_lazy() else "eager")
    table.add_row("test accuracy", f"{accuracy:.1%}, the same after reloading the checkpoint")
    table.add_row("training", f"{images / timer.seconds:,.0f} images/s{simulated}")
    if timer.counts:
        table.add_section()
        table.add_row("per training step", f"mean of {timer.steps} steps on rank 0, by the simulator", style="bold")
        for name in ("graphs", "recompilations", "host_syncs", "h2d_copies", "collectives"):
            label = {"h2d_copies": "host-to-device copies"}.get(name, name.replace("_", " "))
            table.add_row(label, f"{timer.counts[name] / timer.steps:g}")
    return table


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
    """Run the example, check what it has trained, and print the results.

    Returns:
        0, or 1 if the accuracy is too low or changes with the reload.
    """
    # The data are in memory, so workers would not load them faster.
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    # The test images divide evenly among the cards.
    warnings.filterwarnings("ignore", message=".*Using `DistributedSampler` with the dataloaders")
    timer = StepTimer()
    trainer, model = train(callbacks=[timer], enable_checkpointing=False, enable_model_summary=False)
    accuracy = float(trainer.callback_metrics["accuracy"])
    reloaded_accuracy = reload(trainer)

    if reloaded_accuracy != accuracy:
        print(f"the reloaded model scores {reloaded_accuracy:.4f}, the trained one {accuracy:.4f}", file=sys.stderr)
        return 1
    print(rank_line(trainer, timer, model), flush=True)
    if trainer.is_global_zero:
        Console().print(report(timer, trainer.world_size, accuracy))
    if accuracy < REQUIRED_ACCURACY:
        print(f"the accuracy is {accuracy:.1%}, below the required {REQUIRED_ACCURACY:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
