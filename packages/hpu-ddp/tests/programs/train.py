"""Trains the small module on two cards, as a person's script would, and does to a rank what the arguments say.

Prints one line of JSON per process that gets to the end.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.modules import Classifier, loader, numbers, trainer, weights

from hpu_core import bridge, frameworks
from hpu_ddp import HPUDDPStrategy


def fail(how: str) -> None:
    """Have this process fail in some way."""
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "raises":
        raise ValueError("no such luck")
    elif how == "loops":
        while True:
            pass
    elif how == "holds the lock":
        # Waits for a signal without letting any other thread of Python's run.
        ctypes.PyDLL(None).pause()
    elif how == "terminated":
        os.kill(os.getpid(), signal.SIGTERM)


class Failing(Classifier):
    """Fails on one rank, in one batch."""

    def __init__(self, how: str, rank: int, batch: int, *, held: bool) -> None:
        super().__init__()
        self.how, self.rank, self.batch, self.held = how, rank, batch, held
        self.module_id: str | None = None

    def on_train_start(self) -> None:
        """Note the device that this rank has selected."""
        self.module_id = os.environ.get("HLS_MODULE_ID")

    def training_step(self, batch: tuple[Any, Any], index: int) -> Any:
        """Return the loss, or fail first."""
        if self.global_step == self.batch and self.global_rank == self.rank:
            if self.how == "leaves":
                self.trainer.should_stop = True
                # So that the rank leaves at once, whatever is left of the epoch.
                self.trainer.fit_loop.epoch_loop.max_steps = self.batch + 1
            fail(self.how)
        return super().training_step(batch, index)

    def backward(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients; where the rank that fails is awaited for good, as in a collective of HCCL's, do so."""
        if self.held and self.global_step == self.batch and self.global_rank != self.rank:
            # Lets other threads of Python's run, and does not return when a connection breaks.
            ctypes.CDLL(None).pause()
        super().backward(loss, *args, **kwargs)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--start-method", default="popen")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--checkpoints", help="a folder to save each epoch's in, and to resume from the last one's")
    parser.add_argument("--fail", default="", help="how")
    parser.add_argument("--rank", type=int, default=1, help="which rank fails")
    parser.add_argument("--batch", type=int, default=3, help="in which batch")
    parser.add_argument("--open-early", action="store_true", help="open a card before anything is started")
    parser.add_argument("--held", action="store_true", help="the other ranks wait for the one that fails, as on a card")
    return parser.parse_args()


def main() -> None:
    """Train, and say what came of it."""
    options = arguments()
    if options.open_early:
        bridge.open_device()
    callbacks = []
    if options.checkpoints:
        saving = frameworks.current().pytorch("callbacks").ModelCheckpoint
        callbacks.append(saving(options.checkpoints, save_last=True))
    strategy = HPUDDPStrategy(timeout=timedelta(seconds=options.timeout), start_method=options.start_method)
    run = trainer(
        strategy=strategy,
        devices=options.devices,
        num_nodes=options.num_nodes,
        max_epochs=options.epochs,
        callbacks=callbacks,
        enable_checkpointing=bool(callbacks),
    )
    module = Failing(options.fail, options.rank, options.batch, held=options.held)
    last = Path(options.checkpoints or ".", "last.ckpt")
    ranks = options.devices * options.num_nodes
    run.fit(module, loader(ranks=ranks), ckpt_path=str(last) if options.checkpoints and last.exists() else None)
    report = {
        "rank": run.global_rank,
        "local_rank": run.local_rank,
        "open": bridge.is_open(),
        "module_id": module.module_id,
        "variables_left": [name for name in ("HLS_MODULE_ID", "ID") if name in os.environ],
        "threads_left": [thread.name for thread in threading.enumerate() if thread.name.startswith("hpu-")],
        "port": os.environ.get("MASTER_PORT"),
        "epochs": run.current_epoch,
        "steps": run.global_step,
        "losses": numbers(module.losses),
        "weights": weights(module).hex(),
    }
    # In one piece, because ranks write to the same place at the same time.
    os.write(1, (json.dumps(report) + "\n").encode())


if __name__ == "__main__":
    main()
