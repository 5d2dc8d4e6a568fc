"""Data module for folders of images."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_compat._datamodule import HPUDataModule

__all__ = ["HPUDataModule"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.TRAINER, __all__)
