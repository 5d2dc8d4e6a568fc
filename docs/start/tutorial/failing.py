"""Train as spirals.py does, and kill rank 5 in its tenth step."""

import os
import signal

from lightning import Callback, Trainer
from spirals import SpiralClassifier, spirals
from torch.utils.data import DataLoader


class KillRank(Callback):
    """Kills the process of rank 5."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_rank == 5 and batch_idx == 10:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    trainer = Trainer(
        accelerator="hpu",
        devices="auto",
        max_epochs=1,
        callbacks=[KillRank()],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(SpiralClassifier(), DataLoader(spirals(), batch_size=64))
