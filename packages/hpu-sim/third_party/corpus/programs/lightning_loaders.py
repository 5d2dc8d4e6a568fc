"""Semi-supervised training with two loaders, combined to the longer one."""

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import CombinedLoader
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SemiSupervised(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(256, 2048), nn.GELU(), nn.Linear(2048, 10))

    def training_step(self, batch, batch_idx):
        inputs, labels = batch["labelled"]
        (others,) = batch["unlabelled"]
        consistency = nn.functional.mse_loss(self.model(others), self.model(others + 0.1 * torch.randn_like(others)))
        return nn.functional.cross_entropy(self.model(inputs), labels) + consistency

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, nesterov=True)


labelled = TensorDataset(torch.rand(128, 256), torch.randint(0, 10, (128,)))
loaders = {
    "labelled": DataLoader(labelled, batch_size=16, shuffle=True),
    "unlabelled": DataLoader(TensorDataset(torch.rand(1024, 256)), batch_size=48, drop_last=True),
}
Trainer(accelerator="hpu", devices=1, max_epochs=1).fit(SemiSupervised(), CombinedLoader(loaders, "max_size_cycle"))
