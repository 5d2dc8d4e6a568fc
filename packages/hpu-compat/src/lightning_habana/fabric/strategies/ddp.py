"""Re-export of hpu-ddp's strategy "hpu_ddp" for Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

__all__ = ["HPUDDPStrategy"]

if TYPE_CHECKING:
    from hpu_ddp import FabricHPUDDPStrategy as HPUDDPStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, targets=_targets.FABRIC)
