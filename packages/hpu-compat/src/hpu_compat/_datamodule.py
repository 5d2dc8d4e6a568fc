"""`HPUDataModule` of the archived package with torch's DataLoader instead of Intel's media loader."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, Sampler, SequentialSampler

from hpu_core import frameworks

if TYPE_CHECKING:
    from lightning.pytorch import LightningDataModule
else:
    LightningDataModule = frameworks.current().pytorch().LightningDataModule

__all__ = ["HPUDataModule"]

_Transforms = Sequence[Callable[[Any], Any]] | Callable[[Any], Any] | None


class _TorchvisionError(ModuleNotFoundError, ValueError):
    """torchvision cannot be imported. `lightning-habana` raised a ValueError."""


class HPUDataModule(LightningDataModule):
    """Folders of images, one per class, read by torchvision and torch's DataLoader on the host.

    The archived class decoded images on the card. It accepted only ImageNet, four transforms, `num_workers=8` and
    `pin_memory=True`; this one has no such limits.

    Args:
        train_dir: Folder with a folder of images per class, for training.
        val_dir: The same for validation and test.
        num_workers: Number of processes that load images.
        normalize: Not used, as in the archived package: add `Normalize` to the transforms.
        seed: Seed of the order of images in training.
        batch_size: Images per batch and device.
        train_transforms: Transforms of torchvision, or a function of an image, for training.
        val_transforms: The same for validation and test.
        pin_memory: Whether to copy batches to pinned memory.
        shuffle: Must be False: images are always shuffled in training, and never otherwise.
        drop_last: Whether to drop an incomplete last batch, whose shape costs a compilation on a card.
        distributed: Whether to load this rank's share of the images.

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
        super().__init__()
        if shuffle:
            raise ValueError("`shuffle` must be False, got True: images are always shuffled in training")
        self.train_dir, self.val_dir = train_dir, val_dir
        self.num_workers = num_workers
        self.normalize = normalize
        self.seed = seed
        self.batch_size = batch_size
        self.train_transform, self.val_transform = train_transforms, val_transforms
        self.pin_memory = pin_memory
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.distributed = distributed
        self.dataset_train: Dataset[Any] | None = None
        self.dataset_val: Dataset[Any] | None = None

    def setup(self, stage: str | None = None) -> None:  # noqa: ARG002 - Lightning passes it.
        """Find the images of both folders.

        Raises:
            FileNotFoundError: A folder has no images.
            ModuleNotFoundError: torchvision is not installed, or does not fit to torch.
        """
        try:
            from torchvision.datasets import ImageFolder
            from torchvision.transforms import Compose
        except (ImportError, RuntimeError) as error:
            # A torchvision built for another torch raises a RuntimeError.
            raise _TorchvisionError(
                f"HPUDataModule needs torchvision, which cannot be imported ({error}): install the version that "
                "belongs to your torch with `pip install torchvision`, without replacing torch",
                name="torchvision",
            ) from error
        self.dataset_train, self.dataset_val = (
            ImageFolder(str(folder), transform if transform is None or callable(transform) else Compose(transform))
            for folder, transform in ((self.train_dir, self.train_transform), (self.val_dir, self.val_transform))
        )

    def train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the images for training."""
        return self._make_loader(self.dataset_train, is_training=True)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the images for validation."""
        return self._make_loader(self.dataset_val, is_training=False)

    test_dataloader = val_dataloader

    def _make_loader(self, dataset: Any, *, is_training: bool) -> DataLoader[Any]:
        sampler: Sampler[int]
        if self.distributed:
            sampler = DistributedSampler(dataset, shuffle=is_training, seed=self.seed)
        elif is_training:
            sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(self.seed))
        else:
            sampler = SequentialSampler(dataset)
        return DataLoader(
            dataset,
            batch_size=self.batch_size,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            drop_last=self.drop_last,
            sampler=sampler,
        )
