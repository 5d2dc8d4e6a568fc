"""DeepSpeed's ZeRO on Intel Gaudi (HPU) with PyTorch Lightning: models whose state does not fit on one card.

Importing this package loads neither torch, Lightning, DeepSpeed nor the Gaudi bridge, starts no process and opens no
card: every public name is fetched from its module when it is first used.
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
