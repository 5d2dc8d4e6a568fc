"""`HabanaDataLoader`: torch's arguments, and one of the vendor's loaders or torch's own behind them."""

from __future__ import annotations

import copy
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch.distributed
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

from habana_dataloader.imagenet_pipe import IMAGE_SIZE, ImageNetPipe
from hpu_sim.device.runtime import active_config

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HabanaDataLoader", "fetch_habana_unet_loader"]

_REFUSED: Final = ("batch_sampler", "collate_fn", "worker_init_fn", "multiprocessing_context", "generator")
_MAX_PREFETCH: Final = 3
_AEON_WORKERS: Final = 8


class HabanaDataLoader:
    """Loader of a data set. It is no DataLoader of torch's, and has no sampler.

    An `ImageFolder` is decoded by the card on Gaudi 2, and by the vendor's loader for the CPU (aeon) on Gaudi. For
    Gaudi 3, any other data set and any error, it prints a line and uses torch's DataLoader.

    Args:
        dataset: The data set, which is copied.
        **kwargs: Arguments of torch's DataLoader.

    Attributes:
        dataloader: The loader behind it.
    """

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any) -> None:
        try:
            self.dataloader: Any = _habana_loader(dataset, *args, **copy.deepcopy(kwargs))
        except Exception as error:
            # Empty disables the fall-back; "0" and "False" do not.
            if not os.environ.get("DATALOADER_FALLBACK_EN", "1"):
                raise
            sys.stdout.write(
                f"Failed to initialize Habana Dataloader, error: {error}\nRunning with PyTorch Dataloader\n"
            )
            self.dataloader = DataLoader(dataset, *args, **kwargs)
        self._iterator: Iterator[Any] = iter(())

    def __iter__(self) -> HabanaDataLoader:
        """Begin an epoch."""
        self._iterator = iter(self.dataloader)
        return self

    def __next__(self) -> Any:
        """Return a batch."""
        return next(self._iterator)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.dataloader)


def fetch_habana_unet_loader(imgs: Any, lbls: Any, batch_size: int, mode: str, **kwargs: Any) -> NoReturn:
    """Raise: the simulator has no pipes for U-Net.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("hpu-sim simulates the media pipes of ImageNet, and not fetch_habana_unet_loader (U-Net)")


def _habana_loader(dataset: Any, *args: Any, **kwargs: Any) -> Any:
    if args:
        raise TypeError("arguments other than the data set must be keywords")
    names = {base.__name__ for base in type(dataset).__mro__}
    if not names & {"ImageFolder", "ImageFolderWithManifest"}:
        data = getattr(dataset, "data", None)
        if isinstance(data, dict) and "COCO 2017 Dataset" in str(data.get("info", {}).get("description")):
            raise NotImplementedError("hpu-sim simulates the media pipes of ImageNet, and not those of COCO")
        raise TypeError("'NoneType' object is not callable")
    generation = active_config().generation
    if generation == "GAUDI3":
        raise ValueError("Unsupported device")
    if generation == "GAUDI" or os.environ.get("PT_HPU_MEDIA_PIPE", "1").lower() in {"false", "0", "f"}:
        return _aeon_loader(dataset, **kwargs)
    return _media_loader(copy.deepcopy(dataset), **kwargs)


def _place() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size(), torch.distributed.get_rank()
    return 1, 0


def _media_loader(dataset: Any, **kwargs: Any) -> Any:
    for name in _REFUSED:
        if kwargs.get(name) is not None:
            raise ValueError(f"HabanaDataLoader does not support `{name}`")
    if kwargs.get("timeout") or kwargs.get("persistent_workers"):
        raise ValueError("HabanaDataLoader does not support `timeout` and `persistent_workers`")
    shuffle, sampler = kwargs.get("shuffle"), kwargs.get("sampler")
    if sampler is not None:
        sys.stdout.write("Warning: sampler is not supported by MediaPipe and ignored\n")
        is_random = isinstance(sampler, RandomSampler)
        if shuffle is None:
            shuffle = is_random or (isinstance(sampler, DistributedSampler) and sampler.shuffle)
    prefetch = kwargs.get("prefetch_factor")
    slices, index = _place()
    from habana_frameworks.mediapipe.plugins.iterator_pytorch import HPUResnetPytorchIterator

    pipe = ImageNetPipe(
        dataset.transform,
        kwargs.get("batch_size", 1),
        min(max(_MAX_PREFETCH if prefetch is None else prefetch, 1), _MAX_PREFETCH),
        dir=dataset.root,
        shuffle=bool(shuffle),
        drop_remainder=bool(kwargs.get("drop_last")),
        num_slices=slices,
        slice_index=index,
    )
    return HPUResnetPytorchIterator(mediapipe=pipe)


def _aeon_loader(dataset: Any, **kwargs: Any) -> Any:
    """Return the vendor's loader for the CPU: JPEG files in the order of the data set, this rank's share of them.

    No source states its order in training; here it is that of the data set, as without training.

    Raises:
        ValueError: An argument or a transform is one that it does not take.
    """
    expected = {"shuffle": False, "num_workers": _AEON_WORKERS, "prefetch_factor": 2, "pin_memory": True}
    for name, value in expected.items():
        given = kwargs.get(name)
        # Only `pin_memory` must be given.
        if given != value and (given is not None or name == "pin_memory"):
            raise ValueError(f"aeon needs `{name}` {value}, got {given!r}")
    _check_aeon_transforms(dataset.transform)
    if other := next((file for file, _ in dataset.samples if not file.lower().endswith((".jpg", ".jpeg"))), None):
        raise ValueError(f"aeon needs JPEG files, got {other}")
    slices, index = _place()
    share = torch.utils.data.Subset(dataset, range(index, len(dataset), slices))
    return DataLoader(share, batch_size=kwargs.get("batch_size", 1), drop_last=bool(kwargs.get("drop_last")))


def _check_aeon_transforms(transform: Any) -> None:
    """Check that aeon takes a transform.

    Raises:
        ValueError: It does not.
    """
    known = {"RandomResizedCrop", "CenterCrop", "Resize", "RandomHorizontalFlip", "ToTensor", "Normalize"}
    for each in getattr(transform, "transforms", [transform]):
        name = type(each).__name__
        if name not in known:
            raise ValueError(f"aeon does not support the transform {name}")
        if name == "Normalize" and (list(each.mean), list(each.std)) != ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]):
            raise ValueError("aeon supports ImageNet's mean and standard deviation only")
        if name == "RandomHorizontalFlip" and each.p != 0.5:  # noqa: PLR2004 - the only one
            raise ValueError("aeon supports a probability of 0.5 only")
        if name in {"RandomResizedCrop", "CenterCrop"} and tuple(each.size) != (IMAGE_SIZE, IMAGE_SIZE):
            raise ValueError(f"aeon supports crops of {IMAGE_SIZE} only")
