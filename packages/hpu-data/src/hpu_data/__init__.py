"""Images for PyTorch Lightning on Intel Gaudi (HPU), decoded on the card or on the host, with one meaning.

Importing this package does not import torch, Lightning or the Gaudi bridge, and opens no device. Each public name is
imported from its module on first use.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_data.__about__ import __version__
    from hpu_data.datamodule import ImageFolderDataModule
    from hpu_data.errors import CardDecodeError
    from hpu_data.loader import DataLoader
    from hpu_data.sampler import EpochSampler

__all__ = ["CardDecodeError", "DataLoader", "EpochSampler", "ImageFolderDataModule", "__version__"]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_data.__about__": ["__version__"],
        "hpu_data.errors": ["CardDecodeError"],
        "hpu_data.datamodule": ["ImageFolderDataModule"],
        "hpu_data.loader": ["DataLoader"],
        "hpu_data.sampler": ["EpochSampler"],
    },
)
