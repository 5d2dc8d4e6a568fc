"""Training on two devices in which one rank is killed while it writes its shard of a checkpoint.

Saves after each step. Arguments: path of the checkpoint, step to die at, "sync" or "async".
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.modules import UNITS, ImageClassifier, make_trainer, train
from torch.distributed.checkpoint import filesystem

from hpu_fsdp import HPUFSDPStrategy

STEPS = 5


class SavingClassifier(ImageClassifier):
    """Classifier that saves after each step and kills rank 1 in the middle of one save."""

    def __init__(self, path: str, kill_step: int) -> None:
        super().__init__()
        self.path, self.kill_step = path, kill_step

    def on_train_batch_end(self, *args: Any) -> None:
        """Save a checkpoint."""
        if self.trainer.global_step == self.kill_step and self.global_rank == 1:
            filesystem._write_item = _write_part_and_die  # type: ignore[assignment] # It never returns.
        self.trainer.save_checkpoint(self.path)


def _write_part_and_die(*args: Any, **kwargs: Any) -> None:
    stream = next(value for value in (*args, *kwargs.values()) if hasattr(value, "write"))
    stream.write(b"PK\x03\x04")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Train."""
    path, kill_step, kind = sys.argv[1:]
    strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), state_dict_type="sharded", async_save=kind == "async")
    train(SavingClassifier(path, int(kill_step)), make_trainer(strategy=strategy, max_steps=STEPS))


if __name__ == "__main__":
    main()
