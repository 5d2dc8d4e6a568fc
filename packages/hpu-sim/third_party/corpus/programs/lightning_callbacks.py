"""A LightningModule with loggers, hyperparameters and callbacks: `FEATURE` is one of those below."""

import copy
import sys

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer, callbacks, loggers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(LightningModule):
    def __init__(self, width: int = 1024, learning_rate: float = 1e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10)
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        scores = self.layers(images)
        loss = nn.functional.cross_entropy(scores, labels)
        self.log("train_loss", loss, prog_bar=True, sync_dist=True)
        self.log_dict({"accuracy": (scores.argmax(1) == labels).float().mean()}, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]


class Logged(Classifier):
    def on_fit_start(self):
        self.logger.log_hyperparams({"width": 1024})
        self.logger.experiment.add_text("note", "first run")

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.logger.experiment.add_scalar("loss", loss, self.global_step)
        return loss


class EMA(Callback):
    """Average of the weights, on the device."""

    def on_fit_start(self, trainer, pl_module):
        self.average = copy.deepcopy(pl_module.layers)

    @torch.no_grad()
    def on_train_batch_end(self, trainer, pl_module, *args):
        for averaged, parameter in zip(self.average.parameters(), pl_module.layers.parameters(), strict=True):
            averaged.mul_(0.999).add_(parameter.to(averaged.device), alpha=0.001)


class Digits(LightningDataModule):
    def setup(self, stage):
        self.data = TensorDataset(torch.rand(512, 1, 28, 28), torch.randint(0, 10, (512,)))

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=64, shuffle=True, num_workers=2)

    def val_dataloader(self):
        return DataLoader(self.data, batch_size=64)


monitor = {"monitor": "val_loss"}
FEATURES = {
    "tensorboard": {"logger": loggers.TensorBoardLogger("logs"), "log_every_n_steps": 1},
    "csv": {
        "logger": loggers.CSVLogger("logs"),
        "callbacks": [
            callbacks.DeviceStatsMonitor(),
            callbacks.RichProgressBar(),
            callbacks.RichModelSummary(),
            callbacks.LearningRateMonitor(),
            callbacks.ModelCheckpoint(**monitor, save_top_k=2),
            callbacks.EarlyStopping(**monitor),
        ],
    },
    "ema": {"callbacks": [EMA()]},
    "weight_averaging": {"callbacks": [callbacks.EMAWeightAveraging()]},
    "swa": {"callbacks": [callbacks.StochasticWeightAveraging(1e-2, swa_epoch_start=1)]},
    "accumulate": {"accumulate_grad_batches": 4, "gradient_clip_val": 1.0, "precision": "16-mixed"},
}

feature = sys.argv[1]
trainer = Trainer(max_epochs=3, accelerator="hpu", devices="auto", **FEATURES[feature])
trainer.fit(Logged() if feature == "tensorboard" else Classifier(), datamodule=Digits())
trainer.validate(datamodule=Digits())
