"""Re-export of hpu-core's strategy for one device with Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

__all__ = ["SingleHPUStrategy"]

if TYPE_CHECKING:
    from hpu_core.fabric import FabricSingleHPUStrategy as SingleHPUStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, targets=_targets.FABRIC)
