"""Commands, batch scripts and manifests that start a training job on Intel Gaudi (HPU), and a choice of free cards.

Importing this package imports no torch, no Lightning and no bridge, starts no process and opens no device.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_launch.__about__ import __version__
    from hpu_launch.module_locks import free_modules

__all__ = ["__version__", "free_modules"]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_launch.__about__": ["__version__"],
        "hpu_launch.module_locks": ["free_modules"],
    },
)
