"""Import paths of the archived `lightning-habana`, implemented by hpu-core and its peers.

Importing this package or one of its modules imports neither torch, Lightning nor the Gaudi bridge. Each name imports
its package on first use; if that is not installed, the error names the distribution to install.

Raises:
    ImportError: The real `lightning-habana` is installed as well.
"""

from typing import TYPE_CHECKING

import hpu_core
from hpu_compat import _conflict, _lazy, autoload
from lightning_habana.__about__ import __version__

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

if TYPE_CHECKING:
    from hpu_compat._datamodule import HPUDataModule
    from hpu_core import HPUAccelerator, HPUCheckpointIO, SingleHPUStrategy
    from hpu_ddp import HPUDDPStrategy, HPUParallelStrategy
    from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin, HPUDeepSpeedStrategy
    from hpu_fsdp import HPUFSDPPrecision, HPUFSDPStrategy
    from hpu_precision import HPUPrecisionPlugin
    from hpu_profiler import HPUProfiler

    HPU_AVAILABLE: bool
else:
    _computed = {"HPU_AVAILABLE": lambda: hpu_core.is_available()}  # noqa: PLW0108 - the name imports a large module.
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__, computed=_computed)

_conflict.check()
autoload()
