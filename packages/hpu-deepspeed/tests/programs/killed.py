"""Trains on two cards, an epoch per step, and saves a checkpoint in each.

One rank kills itself while a checkpoint is saved.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.modules import Classifier, loader, trainer

from hpu_deepspeed import HPUDeepSpeedStrategy


class Saving(Classifier):
    """Saves after each step; after some, one rank dies in the middle of it."""

    def __init__(self, path: str, killed: int) -> None:
        super().__init__()
        self.path, self.killed = path, killed

    def on_train_epoch_end(self) -> None:
        """Save, and perhaps die."""
        if self.trainer.global_step == self.killed and self.global_rank == 1:
            import torch

            # The state of this rank's optimizer is half written when it dies.
            def dying(obj: Any, file: Any, *args: Any, **kwargs: Any) -> None:
                with Path(file).open("wb") as half:
                    half.write(b"PK\x03\x04")
                os.kill(os.getpid(), signal.SIGKILL)

            torch.save = dying  # type: ignore[assignment] # It never returns.
        self.trainer.save_checkpoint(self.path)


def main() -> None:
    """Train."""
    stage, path, killed = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    run = trainer(HPUDeepSpeedStrategy(stage=stage), max_epochs=8)
    run.fit(Saving(path, killed), loader(run.global_rank, 2, 1))


if __name__ == "__main__":
    main()
