"""Train a small classifier of handwritten digits on all Intel Gaudi cards of a machine, real or simulated.

On a machine with cards:

    python examples/train_digits.py

On simulated cards:

    hpu-sim run --devices 2 examples/train_digits.py

With several cards, the script starts one process per card, and the processes average their gradients. This needs
hpu-ddp. `HABANA_VISIBLE_MODULES=0` selects a single card. `PT_HPU_LAZY_MODE=1` before either command selects lazy mode,
in which a training step is two graphs. The data are the 1,797 scanned digits of 8x8 pixels in scikit-learn.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch
from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import HPUAccelerator, bridge, device_name, is_lazy

BATCH_SIZE = 64
EPOCHS = 12
TEST_SIZE = 360
REQUIRED_ACCURACY = 0.95


class DigitClassifier(LightningModule):
    """Two convolutions and two linear layers, from images of shape (batch, 1, 8, 8) to scores of shape (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss. It is not logged, because logging it in every step is a host-device synchronization."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Log the accuracy."""
        images, labels = batch
        hits = self.layers(images).argmax(dim=1) == labels
        self.log("accuracy", hits.float().mean(), batch_size=len(labels), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=2e-3)


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


def digits() -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """Return the training data and the test data."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16  # Pixels are 0 to 16.
    labels = torch.tensor(data.target)
    training, testing = train_test_split(range(len(labels)), test_size=TEST_SIZE, stratify=labels, random_state=0)
    # A last batch of another size would be another graph.
    train_set = TensorDataset(images[training], labels[training])
    test_set = TensorDataset(images[testing], labels[testing])
    return (
        DataLoader(train_set, BATCH_SIZE, shuffle=True, drop_last=True),
        DataLoader(test_set, batch_size=TEST_SIZE // 4),
    )


def evaluate(
    trainer: Trainer, test_data: DataLoader[tuple[Tensor, ...]], model: LightningModule, checkpoint: Path | None = None
) -> float:
    """Return a model's accuracy on the test data, with the weights of a checkpoint if one is given."""
    (metrics,) = trainer.test(model, test_data, ckpt_path=checkpoint, verbose=False)
    return float(metrics["accuracy"])


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


def main() -> int:
    """Train, evaluate, save, load into a new model and evaluate again.

    Returns:
        0, or 1 if the accuracy is too low or changes with the reload.
    """
    # The data are in memory, so workers would not load them faster.
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    # The test images divide evenly among 2, 4 or 8 cards, so no image counts twice.
    warnings.filterwarnings("ignore", message=".*Using `DistributedSampler` with the dataloaders")
    torch.manual_seed(0)
    training, test_data = digits()

    timer = StepTimer()
    trainer = Trainer(
        accelerator=HPUAccelerator(),
        devices="auto",
        max_epochs=EPOCHS,
        callbacks=[timer],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    model = DigitClassifier()
    trainer.fit(model, training)
    accuracy = evaluate(trainer, test_data, model)

    with tempfile.TemporaryDirectory() as folder:
        # Every rank has a folder, and all use rank 0's. The evaluation ends after all ranks have read the checkpoint,
        # because it averages the accuracy over them.
        checkpoint = Path(trainer.strategy.broadcast(folder)) / "digits.ckpt"
        trainer.save_checkpoint(checkpoint)
        reloaded_accuracy = evaluate(trainer, test_data, DigitClassifier(), checkpoint)

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
