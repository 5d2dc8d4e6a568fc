"""Data module of image folders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hpu_data.loader import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightning.pytorch import LightningDataModule
    from torch.utils.data import Dataset
else:
    from hpu_core import frameworks

    LightningDataModule = frameworks.current().pytorch().LightningDataModule

__all__ = ["ImageFolderDataModule"]


class ImageFolderDataModule(LightningDataModule):
    """Folders of images, one per class, decoded on the card if it can, and else on the host.

    Training shuffles each epoch over all ranks, and checkpoints of Lightning 2.2 or newer keep the position within it.
    Validation and test fill their last batch with images whose label is `pad_label`.

    Args:
        train_dir: Folder with a folder of images per class, for training.
        val_dir: The same for validation, and for test.
        batch_size: Images per batch of one rank.
        train_transforms: Transforms of torchvision, or a function of an image, for training.
        val_transforms: The same for validation and test.
        num_workers: Processes per rank that decode on the host, by default one per CPU and 8 at most; none are started
            where the card decodes.
        drop_last: Whether training leaves out images that fill no batch on all ranks, or repeats some.
        **options: Further arguments of `hpu_data.DataLoader`, such as `decode`, `pad_label` and `seed`, or of torch's.
    """

    name = "image-folder"

    def __init__(  # noqa: PLR0913 - two folders, and those of the loader that have other defaults here
        self,
        train_dir: str | os.PathLike[str] | None = None,
        val_dir: str | os.PathLike[str] | None = None,
        batch_size: int = 32,
        *,
        train_transforms: Sequence[Callable[[Any], Any]] | Callable[[Any], Any] | None = None,
        val_transforms: Sequence[Callable[[Any], Any]] | Callable[[Any], Any] | None = None,
        num_workers: int | None = None,
        drop_last: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.train_dir, self.val_dir = train_dir, val_dir
        self.batch_size = batch_size
        self.num_workers = min(8, len(os.sched_getaffinity(0))) if num_workers is None else num_workers
        self.train_transforms, self.val_transforms = train_transforms, val_transforms
        self.drop_last = drop_last
        self.options = options  # By itself, so that LightningCLI finds the arguments of `DataLoader`.
        self.dataset_train: Dataset[Any] | None = None
        self.dataset_val: Dataset[Any] | None = None
        self._loaders: list[DataLoader] = []

    def setup(self, stage: str | None = None) -> None:  # noqa: ARG002 - Lightning passes it.
        """Find the images of both folders.

        Raises:
            FileNotFoundError: A folder has no images.
            ModuleNotFoundError: torchvision is not installed, or does not fit to torch.
        """
        if self.train_dir is not None:
            self.dataset_train = self._image_folder(self.train_dir, self.train_transforms)
        if self.val_dir is not None:
            self.dataset_val = self._image_folder(self.val_dir, self.val_transforms)

    def teardown(self, stage: str | None = None) -> None:  # noqa: ARG002 - as above
        """Release the cards' pipes and end the workers."""
        for loader in self._loaders:
            loader.close()
        self._loaders.clear()

    def train_dataloader(self) -> DataLoader:
        """Return a loader of the images for training."""
        return self._make_loader(self.dataset_train, "train", shuffle=True, drop_last=self.drop_last)

    def val_dataloader(self) -> DataLoader:
        """Return a loader of the images for validation."""
        return self._make_loader(self.dataset_val, "val", shuffle=False, drop_last=False)

    def test_dataloader(self) -> DataLoader:
        """Return a loader of the images for test, which are those for validation."""
        return self.val_dataloader()

    def _make_loader(self, dataset: Any, name: str, *, shuffle: bool, drop_last: bool) -> DataLoader:
        if dataset is None:
            raise ValueError(f"`{name}_dir` must be a folder of images, got None")
        if getattr(dataset, "transform", self) is None:
            raise ValueError(f"`{name}_transforms` must make tensors of one size of the images, got None")
        # Strategies that split a model have fewer replicas than ranks.
        place = getattr(getattr(self.trainer, "strategy", None), "distributed_sampler_kwargs", None) or {}
        loader = DataLoader(
            dataset,
            self.batch_size,
            shuffle,
            drop_last=drop_last,
            num_workers=self.num_workers,
            num_replicas=place.get("num_replicas"),
            rank=place.get("rank"),
            **self.options,
        )
        self._loaders.append(loader)
        return loader

    def _image_folder(self, folder: str | os.PathLike[str], transforms: Any) -> Dataset[Any]:
        try:
            from torchvision.datasets import ImageFolder
            from torchvision.transforms import Compose
        except (ImportError, RuntimeError) as error:
            # A torchvision built for another torch raises a RuntimeError.
            raise ModuleNotFoundError(
                f"{type(self).__name__} needs torchvision, which cannot be imported ({error}): install the version "
                "that belongs to your torch with `pip install torchvision`, without replacing torch",
                name="torchvision",
            ) from error
        is_one = transforms is None or callable(transforms)
        dataset: Dataset[Any] = ImageFolder(str(folder), transforms if is_one else Compose(transforms))
        return dataset
