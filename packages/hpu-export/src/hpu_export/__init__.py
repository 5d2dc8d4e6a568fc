"""Checkpoints trained on Intel Gaudi (HPU) as safetensors and Hugging Face folders that others load.

Importing this package imports no torch, no Lightning and no transformers. Exporting needs no card and no bridge.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_export.__about__ import __version__
    from hpu_export.export import export_checkpoint
    from hpu_export.names import StateDictMismatchError
    from hpu_export.options import ExportOptions

__all__ = [
    "ExportOptions",
    "StateDictMismatchError",
    "__version__",
    "export_checkpoint",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_export.__about__": ["__version__"],
        "hpu_export.export": ["export_checkpoint"],
        "hpu_export.names": ["StateDictMismatchError"],
        "hpu_export.options": ["ExportOptions"],
    },
)
