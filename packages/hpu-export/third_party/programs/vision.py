"""Train models of timm and torchvision for a step, export them, and load them with timm and torch; print the results.

python vision.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

# The wheel of torchvision is built for CUDA. Beside a CPU build of torch, its import asks for operators that it does
# not load, and that these models do not need.
library = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import lightning.pytorch as pl  # noqa: E402 - see above.
import timm  # noqa: E402 - as above.
import torchvision  # noqa: E402 - as above.
from safetensors.torch import load_file  # noqa: E402 - as above.

from hpu_export import export_checkpoint  # noqa: E402 - as above.


class Module(pl.LightningModule):
    """Classifier of images."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def training_step(self, images: torch.Tensor, index: int) -> torch.Tensor:
        """Return a loss."""
        loss: torch.Tensor = self.model(images).pow(2).mean()
        return loss

    def configure_optimizers(self) -> Any:
        """Return an optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(folder: Path) -> None:
    """Print whether the outputs are equal, by model."""
    results = {}
    names: dict[str, Any] = {
        "timm resnet10t": lambda: timm.create_model("resnet10t", num_classes=5),
        "timm vit_tiny": lambda: timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=64),
        "torchvision resnet18": lambda: torchvision.models.resnet18(num_classes=5),
    }
    images: Any = torch.randn(4, 3, 64, 64)
    for name, make in names.items():
        options: dict[str, Any] = {"max_steps": 1, "logger": False, "enable_progress_bar": False}
        trainer = pl.Trainer(accelerator="cpu", enable_checkpointing=False, enable_model_summary=False, **options)
        module = Module(make())
        trainer.fit(module, torch.utils.data.DataLoader(images, batch_size=4))
        trainer.save_checkpoint(folder / f"{name}.ckpt")
        out = export_checkpoint(folder / f"{name}.ckpt", folder / f"{name}.safetensors")
        loaded = make()
        if name.startswith("timm"):
            timm.models.load_checkpoint(loaded, str(out))
        else:
            loaded.load_state_dict(load_file(out))
        results[name] = torch.equal(loaded.eval()(images), module.model.eval()(images))
    sys.stdout.write(f"RESULT {json.dumps(results)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
