"""Files of an image folder, and the headers that tell whether the card can decode them."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image
from torch.utils.data import Dataset, Subset

from hpu_data.errors import CardDecodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ImageFiles", "files_of"]

_EXTENSIONS: Final = (".jpg", ".jpeg")


def files_of(dataset: Dataset[Any]) -> tuple[ImageFiles, Any]:
    """Return the files of an `ImageFolder` of torchvision, or of a `Subset` of one, and its transform.

    Raises:
        CardDecodeError: It is another data set, or its images are not read as an `ImageFolder` reads them.
    """
    if isinstance(dataset, Subset):
        files, transform = files_of(dataset.dataset)
        return ImageFiles([files.samples[index] for index in dataset.indices], files.largest), transform
    reads = next(each for each in type(dataset).__mro__ if "__getitem__" in vars(each))
    samples = getattr(dataset, "samples", None)
    if not reads.__module__.startswith("torchvision.datasets") or samples is None:
        raise CardDecodeError(f"{type(dataset).__name__} is not an ImageFolder of torchvision")
    source: Any = dataset
    if getattr(source, "transforms", None) is not None and type(source.transforms).__name__ != "StandardTransform":
        raise CardDecodeError("the data set has a joint transform of image and label")
    loader = getattr(source, "loader", None)
    if not str(getattr(loader, "__module__", "")).startswith("torchvision.datasets"):
        raise CardDecodeError(f"the data set has a loader of its own, {loader!r}")
    other = [file for file, _ in samples if not str(file).lower().endswith(_EXTENSIONS)]
    if other:
        raise CardDecodeError(f"the card decodes JPEG files, and {len(other)} of {len(samples)} are not: {other[0]}")
    to_label = source.target_transform or int
    labels = {label: to_label(label) for label in {label for _, label in samples}}
    if not all(isinstance(label, int) for label in labels.values()):
        raise CardDecodeError("`target_transform` must return an int")
    largest = max((file for file, _ in samples), key=lambda file: Path(file).stat().st_size)
    return ImageFiles([(str(file), labels[label]) for file, label in samples], str(largest)), source.transform


@dataclass(eq=False)
class ImageFiles:
    """Files and labels in the order of the data set.

    Attributes:
        samples: Path and label of each image.
        largest: The largest file.
    """

    samples: Sequence[tuple[str, int]]
    largest: str

    def __post_init__(self) -> None:
        # Zero until the header is read.
        self._sizes = np.zeros((len(self.samples), 2), dtype=np.int32)
        self._converted: dict[int, str] = {}
        self._folder: Path | None = None

    def read(self, index: int) -> tuple[str, tuple[int, int]]:
        """Return the file of an image, and its width and height.

        A file that only has the name of a JPEG, or has four inks, which ImageNet has some of, is converted once.

        Raises:
            OSError: The file is missing or no image.
        """
        file = self._converted.get(index, self.samples[index][0])
        if not self._sizes[index, 0]:
            with Image.open(file) as image:
                self._sizes[index] = image.size
                if image.format != "JPEG" or image.mode == "CMYK":
                    file = self._converted[index] = self._convert(index, image)
        return file, (int(self._sizes[index, 0]), int(self._sizes[index, 1]))

    def _convert(self, index: int, image: Image.Image) -> str:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="hpu-data-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        file = self._folder / f"{index}.jpg"
        image.convert("RGB").save(file, quality=100, subsampling=0)
        return str(file)
