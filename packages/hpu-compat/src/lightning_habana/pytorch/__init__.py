"""Import paths of the archived package for the Trainer."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = [
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
]

if TYPE_CHECKING:
    from hpu_compat._datamodule import HPUDataModule
    from hpu_core import HPUAccelerator, HPUCheckpointIO, SingleHPUStrategy
    from hpu_ddp import HPUDDPStrategy, HPUParallelStrategy
    from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin, HPUDeepSpeedStrategy
    from hpu_fsdp import HPUFSDPPrecision, HPUFSDPStrategy
    from hpu_precision import HPUPrecisionPlugin
    from hpu_profiler import HPUProfiler
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
