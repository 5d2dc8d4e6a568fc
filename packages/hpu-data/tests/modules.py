"""Image folders, transforms and a small model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

_FORMULAS = Path(__file__).parent / "formulas"


def prepare() -> None:
    """Import the stand-in as torchvision, after Lightning: torchmetrics would look for its models."""
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
        file = _FORMULAS / f"{name.partition('.')[2] or '__init__'}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


def write_images(folder: Path, count: int, kind: str = "jpg", *, constant: bool = False) -> Path:
    """Write images of two classes, smooth or of one gray that is the index times ten, of different sizes."""
    rng = np.random.default_rng(0)
    for index in range(count):
        file = folder / "ab"[index % 2] / f"{index:02}.{kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (5, 6, 3), dtype=np.uint8)
        if constant:
            pixels[:] = index * 10
        size = 48 + 5 * index, 70 - 2 * index
        Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(file, quality=95)
    return folder


def training(size: int = 32) -> Any:
    """Return the usual transforms for training."""
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )


def evaluation(size: int = 32) -> Any:
    """Return the usual transforms for evaluation."""
    from torchvision import transforms

    return transforms.Compose([transforms.Resize(size + 8), transforms.CenterCrop(size), transforms.ToTensor()])


def image_folder(folder: Path, transform: Any, **options: Any) -> Any:
    """Return an `ImageFolder`."""
    from torchvision.datasets import ImageFolder

    return ImageFolder(str(folder), transform, **options)


class Classifier(pl.LightningModule):
    """A convolution and a linear layer, which notes what it sees.

    Attributes:
        seen: Labels and sums of pixels of each batch in training.
        counted: Number of images of each validation batch that are not padding.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2))
        self.seen: list[list[float]] = []
        self.counted: list[int] = []
        self.devices: set[str] = set()

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        images, labels = batch
        self.devices.add(images.device.type)
        self.seen.append([round(value, 3) for value in images.cpu().double().sum((1, 2, 3)).tolist()])
        return nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Count the images."""
        images, labels = batch
        self.counted.append(int((labels >= 0).sum()))
        self.log("loss", nn.functional.cross_entropy(self.layers(images), labels), batch_size=self.counted[-1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def trainer(**options: Any) -> pl.Trainer:
    """Return a quiet Trainer on one card."""
    defaults = {
        "accelerator": "hpu",
        "devices": 1,
        "max_epochs": 2,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(**{**defaults, **options})
