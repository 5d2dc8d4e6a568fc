"""Training of a small module, on two devices by default, with an optional failure of one rank.

Each process that completes prints one line of JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from tests.modules import make_loader, make_trainer

from hpu_core import bridge, frameworks
from hpu_ddp import HPUDDPStrategy
from hpu_testing.modules import Classifier, parameter_bytes, to_floats

# The batch in which it fails.
_BATCH = 3


def fail(how: str) -> None:
    """Make this process fail."""
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "raises":
        raise ValueError("invalid batch")
    elif how == "loops":
        # Python's own code runs all the time, as in a loop that never ends, and leaves the other ranks a processor.
        while True:
            time.sleep(0.01)
    elif how == "terminated":
        os.kill(os.getpid(), signal.SIGTERM)
    elif how == "signalled":
        os.kill(os.getpid(), signal.SIGUSR1)


class FailingClassifier(Classifier):
    """Classifier that fails on one rank, in one batch."""

    def __init__(self, how: str, rank: int, *, held: bool, before: str) -> None:
        super().__init__()
        self.before = before
        if before == "forward":
            # torch broadcasts it from rank 0 before each forward pass.
            self.register_buffer("statistics", torch.zeros(4))
        self.how, self.rank, self.held = how, rank, held
        self.module_id: str | None = None
        self.first_step = 0

    def on_train_start(self) -> None:
        """Record the device that this rank selected, and the step at which training starts."""
        self.module_id = os.environ.get("HLS_MODULE_ID")
        self.first_step = self.global_step

    def on_train_batch_start(self, batch: tuple[Any, Any], index: int) -> None:
        """Fail before the forward pass, if asked to."""
        if self.before == "forward":
            self.fail_in_batch()

    def fail_in_batch(self) -> None:
        """Fail if this is the rank and the batch."""
        if self.global_step == _BATCH and self.rank in {self.global_rank, -1}:
            fail(self.how)

    def training_step(self, batch: tuple[Any, Any], index: int) -> Any:
        """Return the loss, or fail."""
        if self.before == "loss":
            self.fail_in_batch()
        return super().training_step(batch, index)

    def backward(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        """Run the backward pass; with `held`, block like an HCCL collective that waits for the failed rank."""
        if self.held and self.global_step == _BATCH and self.global_rank != self.rank:
            # The call does not return when a connection breaks.
            ctypes.CDLL(None).pause()
        super().backward(loss, *args, **kwargs)


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--start-method", default="popen")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save-on-exception", help="folder to save a checkpoint in after an error")
    parser.add_argument("--fail", default="", help="kind of failure")
    parser.add_argument("--rank", type=int, default=1, help="rank that fails; -1 for all")
    parser.add_argument("--before", default="loss", choices=["loss", "forward"], help="where it fails")
    parser.add_argument("--held", action="store_true", help="block the others, as HCCL does")
    return parser.parse_args()


def main() -> None:
    """Train and print the result."""
    options = parse_args()
    callbacks = []
    if options.save_on_exception:
        checkpoint_class = frameworks.current().pytorch("callbacks").OnExceptionCheckpoint
        callbacks.append(checkpoint_class(options.save_on_exception))
    strategy = HPUDDPStrategy(timeout=timedelta(seconds=options.timeout), start_method=options.start_method)
    trainer = make_trainer(
        strategy=strategy,
        devices=options.devices,
        num_nodes=options.num_nodes,
        max_epochs=options.epochs,
        callbacks=callbacks,
        enable_checkpointing=bool(callbacks),
    )
    module = FailingClassifier(options.fail, options.rank, held=options.held, before=options.before)
    trainer.fit(module, make_loader(ranks=options.devices * options.num_nodes), [])
    report = {
        "rank": trainer.global_rank,
        "open": bridge.is_open(),
        "module_id": module.module_id,
        "port": os.environ.get("MASTER_PORT"),
        "steps": trainer.global_step,
        "first_step": module.first_step,
        "losses": to_floats(module.losses),
        "weights": parameter_bytes(module).hex(),
    }
    # One write, because ranks share the output.
    os.write(1, (json.dumps(report) + "\n").encode())


if __name__ == "__main__":
    main()
