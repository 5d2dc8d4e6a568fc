"""Re-export of hpu-core's strategy for one device with Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_core.fabric import FabricSingleHPUStrategy as SingleHPUStrategy

__all__ = ["SingleHPUStrategy"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.FABRIC, __all__)
