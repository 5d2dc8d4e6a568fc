"""A card's own kernels for Intel Gaudi (HPU) in an unchanged model: attention, norms, optimizers and clipping.

Importing this package imports neither torch, Lightning nor the Gaudi bridge, starts no process and opens no device.
Each public name is imported from its module on first use.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_kernels.__about__ import __version__
    from hpu_kernels.application import Application
    from hpu_kernels.callback import HPUKernels
    from hpu_kernels.replacement import Row

__all__ = ["Application", "HPUKernels", "Row", "__version__"]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_kernels.__about__": ["__version__"],
        "hpu_kernels.application": ["Application"],
        "hpu_kernels.callback": ["HPUKernels"],
        "hpu_kernels.replacement": ["Row"],
    },
)
