"""Train for long on simulated cards, and print by how much memory, descriptors and threads grow.

A tiny model is trained with DDP, logging, validation and checkpoints. After the first tenth of the steps, the memory of
host and card, the number of open files and that of threads must not grow; a line is fitted through the samples of each
rank. The weights of all ranks must be equal, bit for bit, at every sample.

Usage: `python scripts/soak.py [--ranks 8] [--steps 50000] [--every 1000]`; `nox -s soak` calls it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from hpu_sim.testing import Program, machine_env

_SAMPLES: Final = 200
_WARM_UP: Final = 0.1
_MAX_SECONDS: Final = 24 * 3600.0
# Of what a quantity is at the end of the warm-up, how much the fitted line may rise until the end: malloc's arenas and
# Python's own caches keep growing a little.
_MAX_GROWTH: Final = {"host KiB": 0.02, "card KiB": 0.0, "files": 0.0, "threads": 0.0}
# A process that holds a card also has open pipes and sockets that come and go.
_NOISE: Final = {"host KiB": 0.0, "card KiB": 1.0, "files": 1.0, "threads": 1.0}


def train(options: argparse.Namespace) -> None:
    """Train on this rank, and append a sample to rank-N.jsonl every few steps."""
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.data import DataLoader, TensorDataset

    from hpu_core import HPUAccelerator
    from hpu_ddp import HPUDDPStrategy

    class Sampler(pl.Callback):
        """Callback that samples this process."""

        def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
            """Write a sample."""
            if trainer.global_step % max(1, options.steps // _SAMPLES):
                return
            digest = hashlib.sha256()
            for parameter in pl_module.parameters():
                digest.update(parameter.detach().cpu().numpy().tobytes())
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            sample = {
                "step": trainer.global_step,
                "host KiB": pages * os.sysconf("SC_PAGE_SIZE") / 1024,
                "card KiB": torch.hpu.memory_allocated() / 1024,  # type: ignore[attr-defined] # The bridge adds it.
                "files": len(list(Path("/proc/self/fd").iterdir())),
                "threads": len(list(Path("/proc/self/task").iterdir())),
                "weights": digest.hexdigest(),
            }
            with Path(f"rank-{trainer.global_rank}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(sample) + "\n")

    class Module(pl.LightningModule):
        """Linear layer with Adam."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 4)

        def training_step(self, batch: Any) -> torch.Tensor:
            """Return and log the loss."""
            loss: torch.Tensor = self.layer(batch[0]).square().mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any) -> None:
            """Log the loss of all ranks."""
            self.log("val", self.layer(batch[0]).square().mean(), sync_dist=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Return Adam."""
            return torch.optim.Adam(self.parameters(), lr=0.001)

    pl.seed_everything(1)
    trainer = pl.Trainer(
        accelerator=HPUAccelerator(),
        strategy=HPUDDPStrategy(),
        devices=options.ranks,
        max_steps=options.steps,
        val_check_interval=options.every,
        check_val_every_n_epoch=None,
        logger=CSVLogger("logs"),
        callbacks=[ModelCheckpoint("checkpoints", every_n_train_steps=options.every), Sampler()],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = torch.randn(options.every * 8 * options.ranks, 16)
    trainer.fit(Module(), DataLoader(TensorDataset(data), batch_size=8), DataLoader(TensorDataset(data[:64])))


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the line with the smallest squared distance from the points."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def judge(samples: dict[int, list[dict[str, Any]]], steps: int) -> list[str]:
    """Print a row for each rank and quantity; return what is not flat or not equal."""
    problems = []
    print("| rank | quantity | after warm-up | at the end | slope per 1,000 steps |")
    print("|---|---|---|---|---|")
    for rank, series in sorted(samples.items()):
        settled = [sample for sample in series if sample["step"] > _WARM_UP * steps]
        for name, limit in _MAX_GROWTH.items():
            points = [(float(sample["step"]), float(sample[name])) for sample in settled]
            rate, first = slope(points), points[0][1]
            print(f"| {rank} | {name} | {first:,.0f} | {points[-1][1]:,.0f} | {1000 * rate:+.3f} |")
            if rate * (points[-1][0] - points[0][0]) > max(limit * first, _NOISE[name]):
                problems.append(f"rank {rank}: {name} grows by {1000 * rate:+.3f} per 1,000 steps")
    weights = [[(sample["step"], sample["weights"]) for sample in series] for series in samples.values()]
    different = [group[0][0] for group in zip(*weights, strict=True) if len(set(group)) > 1]
    if different:
        problems.append(f"weights differ between ranks from step {different[0]} on")
    return problems


def main() -> int:
    """Train, print the table, and return 1 if something grows or differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--every", type=int, default=1000, help="steps from one validation and checkpoint to the next")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        command = [sys.executable, str(Path(__file__).resolve()), "--train"]
        command += [f"--{key}={getattr(options, key)}" for key in ("ranks", "steps", "every")]
        began = time.monotonic()
        with Program(command, machine_env(options.ranks, folder / "machine"), folder) as program:
            done = program.wait(_MAX_SECONDS)
        samples = {
            int(path.stem.removeprefix("rank-")): [json.loads(line) for line in path.read_text().splitlines()]
            for path in folder.glob("rank-*.jsonl")
        }
    if done.code != 0 or len(samples) != options.ranks or done.leaked_pids:
        print(done.output)
        return 1
    problems = judge(samples, options.steps)
    print(f"\n{options.ranks} ranks, {options.steps:,} steps in {time.monotonic() - began:,.0f} s (simulated)")
    print("flat, and no drift between ranks" if not problems else "\n".join(problems))
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
