"""Training on one card, which is hpu-core's."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_core.fabric import FabricSingleHPUStrategy as SingleHPUStrategy

__all__ = [
    "SingleHPUStrategy",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.FABRIC, __all__)
