"""Re-export of hpu-fsdp's precision plugin."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_fsdp import FabricHPUFSDPPrecision as HPUFSDPPrecision

__all__ = ["HPUFSDPPrecision"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.FABRIC, __all__)
