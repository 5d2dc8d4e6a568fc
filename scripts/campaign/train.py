"""Training of a small module in which a rank may fail at a random moment; `measure.py` starts it.

Prints the loss of the last step and a digest of the weights. Writes the time of the failure, on the system's monotonic
clock, to FAULT_FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import multiprocessing
import os
import resource
import signal
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hpu_core import HPUAccelerator

EPOCHS = 10
STEPS_PER_EPOCH = 4
# Seconds.
_CLOCK_JUMPS = {"clock forward": 300, "clock back": -300}
# Memory that `use_up_memory` takes, and that must not be freed.
_TAKEN: list[bytes] = []
_SIGNALS = {"killed": signal.SIGKILL, "terminated": signal.SIGTERM, "stopped": signal.SIGSTOP}


class Fault(pl.Callback):
    """Failure of this rank, some time after a hook of the Trainer.

    Args:
        kind: What fails.
        phase: "setup", "train", "validate", "save" or "teardown".
        call: Which call of the phase's hook, from 0.
        delay: Seconds from the hook to the failure.
    """

    def __init__(self, kind: str, phase: str, call: int, delay: float) -> None:
        self._kind, self._phase, self._call, self._delay = kind, phase, call, delay

    def setup(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        """Fail during set-up."""
        self._reach("setup", trainer)

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Fail during training."""
        self._reach("train", trainer)

    def on_validation_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Fail during validation."""
        self._reach("validate", trainer)

    def on_save_checkpoint(self, trainer: pl.Trainer, *_: Any) -> None:
        """Fail during saving: the hook precedes the writing."""
        self._reach("save", trainer)

    def on_fit_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Fail during teardown."""
        self._reach("teardown", trainer)

    def _reach(self, phase: str, trainer: pl.Trainer) -> None:
        if phase != self._phase:
            return
        self._call -= 1
        if self._call != -1:
            return
        if self._kind == "out of memory":
            # Of all faults the only one that the rank itself runs into.
            note_time()
            torch.empty(1 << 50, dtype=torch.uint8, device=trainer.strategy.root_device)
        elif self._delay:
            threading.Timer(self._delay, fail, [self._kind]).start()
        else:
            fail(self._kind)


def note_time() -> None:
    """Write the time to FAULT_FILE."""
    Path(os.environ["FAULT_FILE"]).write_text(str(time.monotonic()), encoding="ascii")


def fail(kind: str) -> None:
    """Fail now."""
    note_time()
    if kind in _SIGNALS:
        if kind == "stopped" and os.environ.get("LOCAL_RANK", "0") == "0":
            # No rank can end its launcher, so somebody continues it when the other rank has ended.
            command = f"sleep {os.environ['CONTINUE_AFTER']}; kill -CONT {os.getpid()}"
            subprocess.Popen(["sh", "-c", command], start_new_session=True)  # noqa: S603, S607 - numbers of our own.
        os.kill(os.getpid(), _SIGNALS[kind])
    elif kind == "worker killed":
        for worker in multiprocessing.active_children():
            worker.kill()
    elif kind == "disk full":
        fill_disk(Path("filler"))
    elif kind in _CLOCK_JUMPS:
        time.clock_settime(time.CLOCK_REALTIME, time.time() + _CLOCK_JUMPS[kind])
    elif kind == "host out of memory":
        use_up_memory()
    elif kind == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", "."], check=True)  # noqa: S607 - util-linux.


def fill_disk(path: Path) -> None:
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def use_up_memory() -> None:
    """Forbid the process more memory than it has, and take what the allocator has left."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), resource.RLIM_INFINITY))
    for size in (1 << 20, 1 << 16, 1 << 12):
        with contextlib.suppress(MemoryError):
            while True:
                _TAKEN.append(bytes(size))


class Module(pl.LightningModule):
    """Two linear layers with Adam, so that optimizer states matter."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        self.loss = 0.0

    def training_step(self, batch: Any) -> torch.Tensor:
        """Return the loss."""
        loss: torch.Tensor = self.layers(batch[0]).square().mean()
        self.loss = float(loss)
        return loss

    def validation_step(self, batch: Any) -> None:
        """Log the loss of all ranks."""
        self.log("val", self.layers(batch[0]).square().mean(), sync_dist=True)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the loader of training."""
        return self._loader(STEPS_PER_EPOCH * 16, seed=2)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the loader of validation."""
        return self._loader(32, seed=3)

    def _loader(self, samples: int, seed: int) -> DataLoader[Any]:
        data = TensorDataset(torch.randn(samples, 16, generator=torch.Generator().manual_seed(seed)))
        # Not shuffled: Lightning 2.6 resumes after an epoch with the order of the first epoch.
        sampler: DistributedSampler[Any] = DistributedSampler(
            data, self.trainer.world_size, self.global_rank, shuffle=False
        )
        return DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def on_fit_end(self) -> None:
        """Print the loss of the last step and a digest of this rank's weights, also if no step was left."""
        digest = hashlib.sha256()
        for parameter in self.parameters():
            digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        os.write(1, f"RESULT {self.global_rank} {self.loss!r} {digest.hexdigest()[:16]}\n".encode())


def make_strategy(name: str, timeout: timedelta) -> Any:
    """Return a strategy by its name."""
    if name == "ddp":
        from hpu_ddp import HPUDDPStrategy

        return HPUDDPStrategy(timeout=timeout)
    if name == "fsdp":
        from hpu_fsdp import HPUFSDPStrategy

        return HPUFSDPStrategy(timeout=timeout, state_dict_type="sharded")
    from hpu_deepspeed import HPUDeepSpeedStrategy

    return HPUDeepSpeedStrategy(stage=2, timeout=timeout, process_group_backend=None)


def main() -> None:
    """Train from the last checkpoint, if there is one, to the last epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=["ddp", "deepspeed", "fsdp"], required=True)
    parser.add_argument("--fault", default="none")
    parser.add_argument("--phase", default="none")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--call", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--timeout", type=float, default=60)
    options = parser.parse_args()
    pl.seed_everything(1)
    callbacks: list[pl.Callback] = [ModelCheckpoint("checkpoints", save_last=True, save_on_train_epoch_end=True)]
    if int(os.environ.get("LOCAL_RANK", "0")) == options.rank:
        callbacks.append(Fault(options.fault, options.phase, options.call, options.delay))
    trainer = pl.Trainer(
        accelerator=HPUAccelerator(),
        strategy=make_strategy(options.strategy, timedelta(seconds=options.timeout)),
        devices=2,
        max_epochs=EPOCHS,
        num_sanity_val_steps=0,
        logger=False,
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    last = Path("checkpoints/last.ckpt")
    trainer.fit(Module(), ckpt_path=last if os.path.lexists(last) else None)
    os.write(1, b"FINISHED\n")


if __name__ == "__main__":
    main()
