"""DeepSpeed ZeRO strategies for PyTorch Lightning on Intel Gaudi (HPU).

Importing this package imports neither torch, Lightning, DeepSpeed nor the Gaudi bridge, starts no process and opens no
device. Public names are imported on first use.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_deepspeed.__about__ import __version__
    from hpu_deepspeed.fabric import FabricHPUDeepSpeedStrategy
    from hpu_deepspeed.precision import HPUDeepSpeedPrecisionPlugin
    from hpu_deepspeed.strategy import HPUDeepSpeedStrategy

__all__ = [
    "FabricHPUDeepSpeedStrategy",
    "HPUDeepSpeedPrecisionPlugin",
    "HPUDeepSpeedStrategy",
    "__version__",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_deepspeed.__about__": ["__version__"],
        "hpu_deepspeed.fabric": ["FabricHPUDeepSpeedStrategy"],
        "hpu_deepspeed.precision": ["HPUDeepSpeedPrecisionPlugin"],
        "hpu_deepspeed.strategy": ["HPUDeepSpeedStrategy"],
    },
)
