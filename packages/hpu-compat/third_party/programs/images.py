"""Train on two folders of images with HPUDataModule on two ranks; rank 0 prints the losses and the weights.

python images.py hpu|cpu
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

# The wheel of torchvision is built for CUDA. Beside a CPU build of torch, its import asks for operators that it does
# not load, and that images do not need.
library = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import lightning.pytorch as pl  # noqa: E402 - see above.
from PIL import Image  # noqa: E402 - as above.
from torchvision.transforms import v2  # noqa: E402 - as above.

from lightning_habana.pytorch.datamodule import HPUDataModule  # noqa: E402 - as above.


class Classifier(pl.LightningModule):
    """A convolution and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2)
        )

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Log the mean over ranks of loss and accuracy."""
        output = self.layers(batch[0])
        accuracy = (output.argmax(dim=1) == batch[1]).float().mean()
        self.log("loss", nn.functional.cross_entropy(output, batch[1]), sync_dist=True)
        self.log("accuracy", accuracy, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.5)


def write_images(folder: Path, count: int) -> None:
    """Write PNG files of two classes, dark and bright, of different sizes."""
    generator = torch.Generator().manual_seed(count)
    for index in range(count):
        label = index % 2
        size = 10 + index % 5
        pixels = torch.randint(128 * label, 128 * label + 128, (size, size, 3), generator=generator)
        file = folder / ("bright" if label else "dark") / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (size, size), bytes(pixels.flatten().tolist())).save(file)


def main(accelerator: str) -> None:
    """Train and validate."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        write_images(Path("train"), 48)
        write_images(Path("val"), 16)
    transforms = [v2.ToImage(), v2.Resize((8, 8)), v2.ToDtype(torch.float32, scale=True)]
    data = HPUDataModule(
        "train",
        "val",
        num_workers=1,
        batch_size=4,
        train_transforms=[*transforms, v2.Normalize([0.5] * 3, [0.25] * 3)],
        val_transforms=v2.Compose([*transforms, v2.Normalize([0.5] * 3, [0.25] * 3)]),
        pin_memory=accelerator == "hpu",
        distributed=True,
    )
    trainer = pl.Trainer(
        accelerator=accelerator,
        devices=2,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Classifier()
    trainer.fit(model, datamodule=data)
    if trainer.is_global_zero:
        weights = [weight.double().abs().sum().item() for weight in model.cpu().state_dict().values()]
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        print("RESULT", json.dumps({"steps": trainer.global_step, "weights": weights, **metrics}))


if __name__ == "__main__":
    main(sys.argv[1])
