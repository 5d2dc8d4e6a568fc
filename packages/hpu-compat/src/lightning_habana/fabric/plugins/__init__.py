"""Re-exports of Fabric's plugins."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_core import HPUCheckpointIO
    from hpu_fsdp import FabricHPUFSDPPrecision as HPUFSDPPrecision
    from hpu_precision import FabricHPUPrecision as HPUPrecision

__all__ = [
    "HPUCheckpointIO",
    "HPUFSDPPrecision",
    "HPUPrecision",
]

__getattr__, __dir__ = _lazy.lazy_getattr(
    __name__, _targets.FABRIC, __all__, submodules=("fsdp_precision", "io_plugin", "precision")
)
