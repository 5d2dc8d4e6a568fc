"""JPEG files for the tests of media pipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path


def write_images(folder: Path, count: int, classes: str = "ab") -> list[str]:
    """Write smooth images of different sizes, and return their files in the order of a reader."""
    rng = np.random.default_rng(0)
    for index in range(count):
        file = folder / classes[index % len(classes)] / f"{index:02}.jpg"
        file.parent.mkdir(exist_ok=True, parents=True)
        pixels = rng.integers(0, 255, (5, 6, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((40 + 4 * index, 60 - 2 * index), Image.Resampling.BICUBIC).save(
            file, quality=95
        )
    return sorted(str(file) for file in folder.glob("*/*.jpg"))
