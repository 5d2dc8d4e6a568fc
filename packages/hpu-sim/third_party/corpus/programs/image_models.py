"""Models for images of `LIBRARY`, by name, trained with Lightning."""

import sys

import torch

if sys.argv[1] in {"torchvision", "timm", "segmentation_models_pytorch"}:
    import torchvision_operators  # noqa: F401 - see there

from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

library, name = sys.argv[1:]
SIZE, CLASSES = 224, 1000
if library == "torchvision":
    from torchvision import models

    backbone = {"weights_backbone": None} if name.startswith("deeplab") else {}
    model = models.get_model(name, weights=None, **backbone)
elif library == "timm":
    import timm

    model = timm.create_model(name, pretrained=False)
elif library == "segmentation_models_pytorch":
    import segmentation_models_pytorch as smp

    model = getattr(smp, name)("resnet34", encoder_weights=None, classes=CLASSES)
elif library == "monai":
    from monai.networks import nets

    model = nets.BasicUNet(2, 3, CLASSES)
is_dense = library in {"segmentation_models_pytorch", "monai"} or name.startswith("deeplab")


class Images(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_idx):
        images, labels = batch
        scores = self.model(images)
        scores = scores["out"] if isinstance(scores, dict) else getattr(scores, "logits", scores)
        loss = nn.functional.cross_entropy(scores, labels)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 0.1, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


classes = 21 if name.startswith("deeplab") else CLASSES
labels = torch.randint(0, classes, (64, SIZE, SIZE) if is_dense else (64,))
trainer = Trainer(accelerator="hpu", devices=8, strategy="ddp", precision="bf16-mixed", max_epochs=2)
trainer.fit(Images(), DataLoader(TensorDataset(torch.rand(64, 3, SIZE, SIZE), labels), batch_size=8))
