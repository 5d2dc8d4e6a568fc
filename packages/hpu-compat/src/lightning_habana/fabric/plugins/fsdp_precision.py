"""Re-export of hpu-fsdp's precision plugin."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

__all__ = ["HPUFSDPPrecision"]

if TYPE_CHECKING:
    from hpu_fsdp import FabricHPUFSDPPrecision as HPUFSDPPrecision
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, targets=_targets.FABRIC)
