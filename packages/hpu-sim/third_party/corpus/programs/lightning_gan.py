"""A GAN with manual optimization and two optimizers, as in Lightning's examples."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GAN(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(100, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 784), nn.Tanh())
        self.discriminator = nn.Sequential(nn.Linear(784, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 1))

    def training_step(self, batch, batch_idx):
        (images,) = batch
        generator, discriminator = self.optimizers()
        noise = torch.randn(len(images), 100, device=self.device)
        ones, zeros = torch.ones(len(images), 1, device=self.device), torch.zeros(len(images), 1, device=self.device)
        loss_of = nn.functional.binary_cross_entropy_with_logits

        self.toggle_optimizer(generator)
        loss = loss_of(self.discriminator(self.generator(noise)), ones)
        self.manual_backward(loss)
        generator.step()
        generator.zero_grad()
        self.untoggle_optimizer(generator)

        self.toggle_optimizer(discriminator)
        fake = self.generator(noise).detach()
        loss = (loss_of(self.discriminator(images), ones) + loss_of(self.discriminator(fake), zeros)) / 2
        self.manual_backward(loss)
        discriminator.step()
        discriminator.zero_grad()
        self.untoggle_optimizer(discriminator)
        self.log("loss", loss.item())

    def configure_optimizers(self):
        return [torch.optim.Adam(each.parameters(), 2e-4) for each in (self.generator, self.discriminator)], []


Trainer(accelerator="hpu", devices=1, max_epochs=2).fit(GAN(), DataLoader(TensorDataset(torch.rand(512, 784)), 64))
