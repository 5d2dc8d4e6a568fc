"""Training that goes on with the machines that are left; docs/start/elastic.md explains it."""

import os
from datetime import timedelta

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from hpu_fsdp import HPUFSDPStrategy

# Rows of an optimizer step, on any number of cards, and of a batch on a card.
STEP_ROWS, BATCH_ROWS = 32, 4


class Model(LightningModule):
    """Small regression."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def on_train_start(self) -> None:
        """Print where the training begins."""
        self.print(f"rank {self.global_rank} of {self.trainer.world_size} begins at step {self.trainer.global_step}")

    def training_step(self, batch, index):
        """Return the loss."""
        values, targets = batch
        return torch.nn.functional.mse_loss(self.net(values), targets)

    def configure_optimizers(self):
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(*callbacks, steps=40):
    """Train, from the last checkpoint if there is one."""
    machines = int(os.environ["GROUP_WORLD_SIZE"])
    cards = int(os.environ["LOCAL_WORLD_SIZE"])
    values = torch.randn(1024, 8, generator=torch.Generator().manual_seed(1))
    trainer = Trainer(
        accelerator="hpu",
        devices=cards,
        num_nodes=machines,
        # A machine that is cut off, and closes no connection, is lost after this time.
        strategy=HPUFSDPStrategy(state_dict_type="sharded", timeout=timedelta(minutes=5)),
        accumulate_grad_batches=STEP_ROWS // (BATCH_ROWS * machines * cards),
        max_epochs=-1,
        max_steps=steps,
        callbacks=[ModelCheckpoint("checkpoints", save_last=True, every_n_train_steps=5), *callbacks],
        logger=False,
        enable_progress_bar=False,
    )
    loader = DataLoader(TensorDataset(values, values.sum(1, keepdim=True)), batch_size=BATCH_ROWS)
    trainer.fit(Model(), loader, ckpt_path="last", weights_only=False)
    trainer.print(f"rank {trainer.global_rank} of {trainer.world_size} ends at step {trainer.global_step}")


if __name__ == "__main__":
    main()
