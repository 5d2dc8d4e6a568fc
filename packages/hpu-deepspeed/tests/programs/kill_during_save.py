"""Training on two devices in which one rank is killed while it saves a checkpoint.

Each epoch has one step and ends with a checkpoint. Arguments: ZeRO stage, path of the checkpoint, step to die at,
"sync" or "async".
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


class SavingClassifier(Classifier):
    """Classifier that saves after each step and kills rank 1 in the middle of one save."""

    def __init__(self, path: str, kill_step: int) -> None:
        super().__init__()
        self.path, self.kill_step = path, kill_step

    def on_train_epoch_end(self) -> None:
        """Save a checkpoint."""
        if self.trainer.global_step == self.kill_step and self.global_rank == 1:
            import torch

            def write_part_and_die(file: Any, *args: Any, **kwargs: Any) -> None:
                with Path(file).open("wb") as partial:
                    partial.write(b"PK\x03\x04")
                os.kill(os.getpid(), signal.SIGKILL)

            if self.trainer.strategy.saves is not None:
                self.trainer.strategy.finish_save()
                Path.write_bytes = write_part_and_die  # type: ignore[assignment,method-assign] # It never returns.
            else:
                torch.save = lambda obj, file, *args, **kwargs: write_part_and_die(file)
        elif self.trainer.global_step == self.kill_step:
            self.trainer.strategy.finish_save()
        self.trainer.save_checkpoint(self.path)


def main() -> None:
    """Train."""
    stage, path, kill_step = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    run = trainer(HPUDeepSpeedStrategy(stage=stage, async_save=sys.argv[4] == "async"), max_epochs=8)
    run.fit(SavingClassifier(path, kill_step), loader(run.global_rank, 2, 1))


if __name__ == "__main__":
    main()
