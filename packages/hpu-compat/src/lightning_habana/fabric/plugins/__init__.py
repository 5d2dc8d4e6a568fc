"""Plugins of Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_compat._absent import HPUFSDPPrecision
    from hpu_core import HPUCheckpointIO
    from hpu_precision import FabricHPUPrecision as HPUPrecision

__all__ = [
    "HPUCheckpointIO",
    "HPUFSDPPrecision",
    "HPUPrecision",
]

__getattr__, __dir__ = _lazy.fetching(
    __name__, _behind.FABRIC, __all__, submodules=("fsdp_precision", "io_plugin", "precision")
)
