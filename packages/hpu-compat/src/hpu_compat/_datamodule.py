"""Data module and loaders of the archived package, by hpu-data."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import DistributedSampler, RandomSampler

from hpu_core import plugins

try:
    from hpu_data import DataLoader, ImageFolderDataModule
except ModuleNotFoundError as error:
    if error.name != "hpu_data":
        raise
    raise plugins.not_installed_error("`HPUDataModule`", "hpu-data") from None

__all__ = ["HPUDataModule", "MediaApiDataLoader"]

_Transforms = Sequence[Callable[[Any], Any]] | Callable[[Any], Any] | None


class HPUDataModule(ImageFolderDataModule):
    """Folders of images, one per class, decoded on the card if it can, and else on the host.

    The archived class accepted only ImageNet, four transforms, `num_workers=8` and `pin_memory=True`, unlike this one.
    Images are those of `hpu_data.ImageFolderDataModule`, and the last batch is dropped, or shorter.

    Args:
        train_dir: Folder with a folder of images per class, for training.
        val_dir: The same for validation and test.
        num_workers: Number of processes that load images on the host.
        normalize: Not used, as in the archived package: add `Normalize` to the transforms.
        seed: Seed of the order of images in training.
        batch_size: Images per batch and device.
        train_transforms: Transforms of torchvision, or a function of an image, for training.
        val_transforms: The same for validation and test.
        pin_memory: Whether to copy batches of the host to pinned memory.
        shuffle: Must be False: images are always shuffled in training, and never otherwise.
        drop_last: Whether to drop an incomplete last batch, whose shape costs a compilation on a card.
        distributed: Not used: each rank always loads its share of the images.

    Raises:
        ValueError: `shuffle` is True.
    """

    name = "hpu-dataset"

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments of the archived class.
        self,
        train_dir: str | os.PathLike[str] = "/tmp/data",  # noqa: S108 - as in the archived class.
        val_dir: str | os.PathLike[str] = "/tmp/data",  # noqa: S108 - as above.
        num_workers: int = 8,
        normalize: bool = False,
        seed: int = 42,
        batch_size: int = 32,
        train_transforms: _Transforms = None,
        val_transforms: _Transforms = None,
        pin_memory: bool = True,
        shuffle: bool = False,
        drop_last: bool = True,
        distributed: bool = False,
    ) -> None:
        if shuffle:
            raise ValueError("`shuffle` must be False, got True: images are always shuffled in training")
        super().__init__(
            train_dir,
            val_dir,
            batch_size,
            train_transforms=train_transforms,
            val_transforms=val_transforms,
            num_workers=num_workers,
            drop_last=drop_last,
            pad_label=None,
            seed=seed,
            pin_memory=pin_memory,
        )
        self.normalize, self.shuffle, self.distributed = normalize, shuffle, distributed

    def val_dataloader(self) -> DataLoader:
        """Return a loader of the images for validation."""
        return self._make_loader(self.dataset_val, "val", shuffle=False, drop_last=self.drop_last)


class MediaApiDataLoader(DataLoader):
    """Loader of an image folder with the arguments of torch's DataLoader, and the data set's own transforms.

    The archived class, and `HabanaDataLoader` behind it on older cards, had transforms of their own.

    Args:
        dataset: The data set.
        batch_size: Images per batch.
        shuffle: Whether each epoch has a random order; None for what the sampler says.
        sampler: A `RandomSampler` or `DistributedSampler`, which only says whether to shuffle.
        **options: Further arguments of `hpu_data.DataLoader`.
    """

    def __init__(
        self, dataset: Any, batch_size: int = 1, shuffle: bool | None = None, sampler: Any = None, **options: Any
    ) -> None:
        if shuffle is None:
            is_random = isinstance(sampler, RandomSampler)
            shuffle = is_random or (isinstance(sampler, DistributedSampler) and sampler.shuffle)
        super().__init__(dataset, batch_size, shuffle, **{"pad_label": None, **options})
