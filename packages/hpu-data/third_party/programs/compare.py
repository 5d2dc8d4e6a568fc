"""Compare batches of the simulated card's decoder with those of torchvision, and print the differences by transform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

# The wheel of torchvision is built for CUDA. Beside a CPU build of torch, its import asks for operators that it does
# not load, and that images do not need.
library = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from PIL import Image  # noqa: E402 - see above.
from torchvision import transforms as v1  # noqa: E402 - as above.
from torchvision.datasets import ImageFolder  # noqa: E402 - as above.
from torchvision.transforms import v2  # noqa: E402 - as above.

from hpu_core import bridge  # noqa: E402 - as above.
from hpu_data import DataLoader  # noqa: E402 - as above.

_SMOOTH = (6, 8, 3)


def write_images(folder: Path, count: int) -> None:
    """Write JPEG files of different sizes: smooth ones, and every third of noise."""
    rng = np.random.default_rng(0)
    for index in range(count):
        size = (120 + 13 * index, 200 - 7 * index)
        shape = (size[1], size[0], 3) if index % 3 == 0 else _SMOOTH
        image = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
        file = folder / "ab"[index % 2] / f"{index}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        image.resize(size, Image.Resampling.BICUBIC).save(file, quality=95)


def steps(module: Any, *, is_tensor: bool) -> dict[str, list[Any]]:
    """Return the transforms to compare by name, to uint8 tensors."""
    before = [module.ToImage()] if is_tensor else []
    after = [] if is_tensor else [module.PILToTensor()]
    made = {
        "random crop and flips": [
            module.RandomResizedCrop(64),
            module.RandomHorizontalFlip(0.3),
            module.RandomVerticalFlip(),
        ],
        "bicubic random crop": [module.RandomResizedCrop(64, interpolation=module.InterpolationMode.BICUBIC)],
        "resize to two sizes": [module.Resize((64, 96))],
        "resize and center crop": [module.Resize(80), module.CenterCrop(64)],
    }
    return {name: [*before, *each, *after] for name, each in made.items()}


def main() -> None:
    """Print the largest and the mean difference of levels of each transform."""
    folder = Path("images")
    write_images(folder, 12)
    bridge.open_device()
    found = {}
    for version, module, is_tensor in (("v1", v1, False), ("v2", v2, False), ("v2, tensors", v2, True)):
        for name, each in steps(module, is_tensor=is_tensor).items():
            dataset = ImageFolder(str(folder), module.Compose(each))
            card, host = (DataLoader(dataset, 4, shuffle=True, decode=decode) for decode in ("card", "host"))
            differences = [
                (one.cpu().int() - other.int()).abs()
                for (one, labels), (other, expected) in zip(card, host, strict=True)
                if labels.tolist() == expected.tolist()
            ]
            levels = torch.cat(differences)
            found[f"{version}: {name}"] = (len(levels), int(levels.max()), round(float(levels.double().mean()), 4))
    print("RESULT", json.dumps(found))


if __name__ == "__main__":
    main()
