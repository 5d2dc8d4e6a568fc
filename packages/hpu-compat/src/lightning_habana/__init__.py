"""The import paths of the archived `lightning-habana`, with hpu-core and its peers behind them.

Importing this package or any module of it loads neither torch, Lightning nor the Gaudi bridge: each name loads the one
package that it comes from when it is first used, and where that is not installed, the error says what to install.

Raises:
    ImportError: The real `lightning-habana` is installed, too.
"""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _beside, _lazy, autoload
from lightning_habana.__about__ import __version__

if TYPE_CHECKING:
    from hpu_compat._absent import HPUDataModule, HPUFSDPPrecision, HPUFSDPStrategy
    from hpu_core import HPUAccelerator, HPUCheckpointIO, SingleHPUStrategy
    from hpu_ddp import HPUDDPStrategy, HPUParallelStrategy
    from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin, HPUDeepSpeedStrategy
    from hpu_precision import HPUPrecisionPlugin
    from hpu_profiler import HPUProfiler

    HPU_AVAILABLE: bool

__all__ = [
    "HPU_AVAILABLE",
    "HPUAccelerator",
    "HPUCheckpointIO",
    "HPUDDPStrategy",
    "HPUDataModule",
    "HPUDeepSpeedPrecisionPlugin",
    "HPUDeepSpeedStrategy",
    "HPUFSDPPrecision",
    "HPUFSDPStrategy",
    "HPUParallelStrategy",
    "HPUPrecisionPlugin",
    "HPUProfiler",
    "SingleHPUStrategy",
    "__version__",
]


def _is_available() -> bool:
    """Tell whether a card can be used. Opens none."""
    from hpu_core import is_available

    return is_available()


__getattr__, __dir__ = _lazy.fetching(
    __name__,
    _behind.TRAINER,
    __all__,
    submodules=("fabric", "pytorch", "utils"),
    found_out={"HPU_AVAILABLE": _is_available},
)

_beside.check()
autoload()
