"""The accelerator, which is hpu-core's: one for the Trainer and Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_core import HPUAccelerator

__all__ = [
    "HPUAccelerator",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.FABRIC, __all__)
