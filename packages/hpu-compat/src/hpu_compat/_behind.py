"""Which object is behind each name of the archived package, as "module:name"."""

from collections.abc import Mapping
from typing import Final

# For the Trainer.
TRAINER: Final[Mapping[str, str]] = {
    "HPUAccelerator": "hpu_core:HPUAccelerator",
    "HPUCheckpointIO": "hpu_core:HPUCheckpointIO",
    "HPUDDPStrategy": "hpu_ddp:HPUDDPStrategy",
    "HPUDataModule": "hpu_compat._absent:HPUDataModule",
    "HPUDeepSpeedPrecisionPlugin": "hpu_deepspeed:HPUDeepSpeedPrecisionPlugin",
    "HPUDeepSpeedStrategy": "hpu_deepspeed:HPUDeepSpeedStrategy",
    "HPUFSDPPrecision": "hpu_compat._absent:HPUFSDPPrecision",
    "HPUFSDPStrategy": "hpu_compat._absent:HPUFSDPStrategy",
    "HPUParallelStrategy": "hpu_ddp:HPUParallelStrategy",
    "HPUPrecisionPlugin": "hpu_precision:HPUPrecisionPlugin",
    "HPUProfiler": "hpu_profiler:HPUProfiler",
    "MediaApiDataLoader": "hpu_compat._absent:MediaApiDataLoader",
    "SingleHPUStrategy": "hpu_core:SingleHPUStrategy",
}

# For Fabric, which had some of the same names.
FABRIC: Final[Mapping[str, str]] = {
    "HPUAccelerator": "hpu_core:HPUAccelerator",
    "HPUCheckpointIO": "hpu_core:HPUCheckpointIO",
    "HPUDDPStrategy": "hpu_ddp:FabricHPUDDPStrategy",
    "HPUFSDPPrecision": "hpu_compat._absent:HPUFSDPPrecision",
    "HPUFSDPStrategy": "hpu_compat._absent:HPUFSDPStrategy",
    "HPUParallelStrategy": "hpu_ddp:FabricHPUParallelStrategy",
    "HPUPrecision": "hpu_precision:FabricHPUPrecision",
    "SingleHPUStrategy": "hpu_core.fabric:FabricSingleHPUStrategy",
}
