"""Train a small classifier of handwritten digits on all Intel Gaudi cards of a machine, real or simulated.

On a machine with cards:

    python examples/train_digits.py

Without any, on simulated ones:

    hpu-sim run --devices 2 examples/train_digits.py

More than one card is one process per card, which the script starts itself and which average their gradients; that
takes hpu-ddp beside hpu-core. `HABANA_VISIBLE_MODULES=0` chooses a single card.

Put `PT_HPU_LAZY_MODE=1` before either for lazy mode, in which a training step becomes two graphs. The data are the
1,797 scanned digits of 8x8 pixels that ship inside scikit-learn.
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
HELD_OUT = 360
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
        """Return the loss. It is not logged: showing it in every step would make the host wait for the card."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Log the share of digits that were recognised."""
        images, labels = batch
        hits = self.layers(images).argmax(dim=1) == labels
        self.log("accuracy", hits.float().mean(), batch_size=len(labels), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=2e-3)


class StepMeter(Callback):
    """Measures training, epoch by epoch, except for the first one: a card compiles its graphs then.

    Attributes:
        steps: Training steps of this rank measured.
        seconds: Time that they took.
        seen: What the simulator counted in them on this rank; empty on a card, which keeps no such counts.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0
        self.seen: Counter[str] = Counter()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, once the card has finished what came before."""
        bridge.synchronize()
        self._before = simulator_counts()
        self._start = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add what this epoch took, unless it was the first."""
        after = simulator_counts()  # Before the line below, which is a host sync itself.
        bridge.synchronize()
        if trainer.current_epoch > 0:
            self.steps += int(trainer.num_training_batches)
            self.seconds += time.perf_counter() - self._start
            self.seen.update(after - self._before)


def simulator_counts() -> Counter[str]:
    """Return what the simulator has counted so far, nothing on a card."""
    if not bridge.is_simulated():
        return Counter()
    import hpu_sim

    return Counter(hpu_sim.stats())


def digits() -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """Return the training images and the held-out ones."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16  # Pixels are 0 to 16.
    labels = torch.tensor(data.target)
    training, held_out = train_test_split(range(len(labels)), test_size=HELD_OUT, stratify=labels, random_state=0)
    # A last batch of another size would be another graph, so it is left out of training.
    train_set = TensorDataset(images[training], labels[training])
    test_set = TensorDataset(images[held_out], labels[held_out])
    return (
        DataLoader(train_set, BATCH_SIZE, shuffle=True, drop_last=True),
        DataLoader(test_set, batch_size=HELD_OUT // 4),
    )


def evaluate(
    trainer: Trainer, held_out: DataLoader[tuple[Tensor, ...]], model: LightningModule, checkpoint: Path | None = None
) -> float:
    """Return the share of held-out digits that a model recognises, with the weights of a checkpoint if one is given."""
    (metrics,) = trainer.test(model, held_out, ckpt_path=checkpoint, verbose=False)
    return float(metrics["accuracy"])


def device() -> str:
    """Return what kind of card this is, and whether it is one."""
    return f"{device_name()} (simulated)" if bridge.is_simulated() else str(device_name())


def rank_line(trainer: Trainer, meter: StepMeter, model: LightningModule) -> str:
    """Return what this rank did. All ranks end with the same weights, bit for bit, and so with the same digest."""
    weights = b"".join(weight.cpu().numpy().tobytes() for weight in model.state_dict().values())
    images = meter.steps * BATCH_SIZE
    return (
        f"rank {trainer.global_rank} of {trainer.world_size} on {device()}: {images / meter.seconds:,.0f} images/s in "
        f"{meter.steps} steps, weights {hashlib.sha256(weights).hexdigest()[:12]}"
    )


def report(meter: StepMeter, cards: int, accuracy: float) -> Table:
    """Return what came out, as a table."""
    simulated = " (simulated)" if bridge.is_simulated() else ""
    images = cards * meter.steps * BATCH_SIZE
    table = Table(title="Handwritten digits", show_header=False)
    table.add_row("device", f"{cards} x {device()}" if cards > 1 else device())
    table.add_row("mode", "lazy" if is_lazy() else "eager")
    table.add_row("held-out accuracy", f"{accuracy:.1%}, the same after reloading the checkpoint")
    table.add_row("training", f"{images / meter.seconds:,.0f} images/s{simulated}")
    if meter.seen:
        table.add_section()
        table.add_row("per training step", f"as the simulator saw {meter.steps} of them on rank 0", style="bold")
        for name in ("graphs", "recompilations", "host_syncs", "h2d_copies", "collectives"):
            label = {"h2d_copies": "host-to-device copies"}.get(name, name.replace("_", " "))
            table.add_row(label, f"{meter.seen[name] / meter.steps:g}")
    return table


def main() -> int:
    """Train, evaluate, save, load into a fresh model and evaluate again.

    Returns:
        0, or 1 when the accuracy is too low or not the same after reloading.
    """
    # The data lie in memory already, so Lightning's advice to load them in other processes does not apply.
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    # Nor does its advice to test on one card: each of 2, 4 or 8 cards gets as many of the held-out images.
    warnings.filterwarnings("ignore", message=".*Using `DistributedSampler` with the dataloaders")
    torch.manual_seed(0)
    training, held_out = digits()

    meter = StepMeter()
    trainer = Trainer(
        accelerator=HPUAccelerator(),
        devices="auto",
        max_epochs=EPOCHS,
        callbacks=[meter],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    model = DigitClassifier()
    trainer.fit(model, training)
    accuracy = evaluate(trainer, held_out, model)

    with tempfile.TemporaryDirectory() as folder:
        # Each rank has made a folder, and the checkpoint is in rank 0's. All have read it when the evaluation is over,
        # because the accuracy is averaged over them.
        checkpoint = Path(trainer.strategy.broadcast(folder)) / "digits.ckpt"
        trainer.save_checkpoint(checkpoint)
        accuracy_again = evaluate(trainer, held_out, DigitClassifier(), checkpoint)

    if accuracy_again != accuracy:
        print(f"the reloaded model scores {accuracy_again:.4f}, the trained one {accuracy:.4f}", file=sys.stderr)
        return 1
    print(rank_line(trainer, meter, model), flush=True)
    if trainer.is_global_zero:
        Console().print(report(meter, trainer.world_size, accuracy))
    if accuracy < REQUIRED_ACCURACY:
        print(f"the accuracy is {accuracy:.1%}, below the required {REQUIRED_ACCURACY:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
