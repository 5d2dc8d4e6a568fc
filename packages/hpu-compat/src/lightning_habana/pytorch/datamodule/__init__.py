"""Data module for folders of images, and the modules that the archived package had for it."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUDataModule"]

if TYPE_CHECKING:
    from hpu_compat._datamodule import HPUDataModule
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
