from typing import Any

from hpu_compat._datamodule import HPUDataModule as HPUDataModule
from hpu_core import HPUAccelerator as HPUAccelerator
from hpu_core import HPUCheckpointIO as HPUCheckpointIO
from hpu_core import SingleHPUStrategy as SingleHPUStrategy
from hpu_ddp import HPUDDPStrategy as HPUDDPStrategy
from hpu_ddp import HPUParallelStrategy as HPUParallelStrategy
from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin as HPUDeepSpeedPrecisionPlugin
from hpu_deepspeed import HPUDeepSpeedStrategy as HPUDeepSpeedStrategy
from hpu_fsdp import HPUFSDPPrecision as HPUFSDPPrecision
from hpu_fsdp import HPUFSDPStrategy as HPUFSDPStrategy
from hpu_precision import HPUPrecisionPlugin as HPUPrecisionPlugin
from hpu_profiler import HPUProfiler as HPUProfiler
from lightning_habana.__about__ import __version__ as __version__

HPU_AVAILABLE: bool

# The submodules below, most of which are no files.
def __getattr__(name: str) -> Any: ...
