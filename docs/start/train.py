"""Train a classifier of points inside and outside of a circle, on every Gaudi card of this machine."""

import torch
from lightning import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class PointClassifier(LightningModule):
    """Two layers, from points (batch, 2) to scores (batch, 2) for outside and inside."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))

    def training_step(self, batch, batch_idx):
        points, inside = batch
        return nn.functional.cross_entropy(self.layers(points), inside)

    def test_step(self, batch, batch_idx):
        points, inside = batch
        hits = self.layers(points).argmax(dim=1) == inside
        self.log("accuracy", hits.float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    seed_everything(0)
    points = torch.rand(4096, 2)
    inside = (points.norm(dim=1) < 0.8).long()
    data = DataLoader(TensorDataset(points, inside), batch_size=64)

    trainer = Trainer(
        accelerator="hpu",
        devices="auto",
        max_epochs=4,
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    model = PointClassifier()
    trainer.fit(model, data)
    trainer.test(model, data)
