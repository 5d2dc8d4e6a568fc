"""Classes of the archived package without an implementation here: importable, but creating an instance raises.

A program may import such a name without using it, for example for `isinstance`. A missing name would break its import.
"""

from typing import Any, ClassVar

__all__ = ["HPUDataModule", "MediaApiDataLoader"]


class _Unsupported:
    """Base of classes that raise `_message` when they are instantiated."""

    _message: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} {self._message}")


class _MediaLoader(_Unsupported):
    _message = (
        "is not supported: it reads ImageNet with Intel's media loader, which needs torchvision and "
        "`habana_dataloader` (first-generation Gaudi) or `habana_frameworks.mediapipe` (Gaudi 2 and newer) from "
        "Intel's PyTorch image: use a DataLoader, such as DataLoader(ImageFolder(...), num_workers=8, drop_last=True)"
    )


class HPUDataModule(_MediaLoader):
    """ImageNet with Intel's media loader.

    Raises:
        NotImplementedError: Always.
    """


class MediaApiDataLoader(_MediaLoader):
    """Intel's media loader for Gaudi 2 and newer.

    Raises:
        NotImplementedError: Always.
    """
