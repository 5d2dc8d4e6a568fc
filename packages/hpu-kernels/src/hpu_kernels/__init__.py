"""A card's own kernels for Intel Gaudi (HPU) in an unchanged model: attention, norms, optimizers and clipping.

Importing this package imports neither torch, Lightning nor the Gaudi bridge, starts no process and opens no device.
Each public name is imported from its module on first use.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_kernels.__about__ import __version__
    from hpu_kernels.callback import HPUKernels

__all__ = ["HPUKernels", "__version__"]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__, {"hpu_kernels.__about__": ["__version__"], "hpu_kernels.callback": ["HPUKernels"]}
)
