"""`ImageFolder`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from torch.utils.data import Dataset

_EXTENSIONS = (".jpg", ".jpeg", ".png")


def default_loader(path: str) -> Image.Image:
    """Return an image in RGB."""
    with Path(path).open("rb") as file:
        return Image.open(file).convert("RGB")


class ImageFolder(Dataset[Any]):
    """Folder of images per class, at any depth, sorted."""

    def __init__(
        self, root: str, transform: Any = None, target_transform: Any = None, loader: Any = default_loader
    ) -> None:
        self.root, self.transform, self.target_transform, self.loader = root, transform, target_transform, loader
        self.classes = sorted(path.name for path in Path(root).iterdir() if path.is_dir())
        self.samples = [
            (str(file), label)
            for label, name in enumerate(self.classes)
            for file in sorted((Path(root) / name).rglob("*"))
            if file.name.lower().endswith(_EXTENSIONS)
        ]
        if not self.samples:
            raise FileNotFoundError(f"found no images in {root}")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        image = self.loader(path)
        if self.transform is not None:
            image = self.transform(image)
        return image, label if self.target_transform is None else self.target_transform(label)
