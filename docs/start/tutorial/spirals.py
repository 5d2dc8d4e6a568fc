"""Train a classifier of points on two spirals, on every Gaudi card of this job."""

import argparse

import torch
from lightning import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpu_profiler import HPUProfiler


class SpiralClassifier(LightningModule):
    """Four layers, from points (batch, 2) to scores (batch, 2) of the two arms."""

    def __init__(self):
        super().__init__()
        width = 512
        self.layers = nn.Sequential(
            nn.Linear(2, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2),
        )
        self.losses = []

    def training_step(self, batch, batch_idx):
        points, arms = batch
        loss = nn.functional.cross_entropy(self.layers(points), arms)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def spirals(count=8100):
    """Return points on two spirals, and the arm of each."""
    arms = torch.arange(count) % 2
    radius = torch.rand(count)
    angle = 6 * radius + torch.pi * arms
    points = radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    return TensorDataset(points + 0.01 * torch.randn(count, 2), arms)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()

    seed_everything(0)
    trainer = Trainer(
        accelerator="hpu",
        devices="auto",
        num_nodes=arguments.nodes,
        max_epochs=4,
        profiler=HPUProfiler(dirpath="traces", with_stack=True) if arguments.profile else None,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    model = SpiralClassifier()
    trainer.fit(model, DataLoader(spirals(), batch_size=64, shuffle=True))
    trainer.print(f"loss: {float(model.losses[0]):.3f} at first, {float(model.losses[-1]):.3f} at last")
