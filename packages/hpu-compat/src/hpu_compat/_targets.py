"""Targets of the archived package's names, as "module:name"."""

from collections.abc import Mapping
from typing import Final

# Names for the Trainer.
TRAINER: Final[Mapping[str, str]] = {
    "HPUAccelerator": "hpu_core:HPUAccelerator",
    "HPUCheckpointIO": "hpu_core:HPUCheckpointIO",
    "HPUDDPStrategy": "hpu_ddp:HPUDDPStrategy",
    "HPUDataModule": "hpu_compat._datamodule:HPUDataModule",
    "HPUDeepSpeedPrecisionPlugin": "hpu_deepspeed:HPUDeepSpeedPrecisionPlugin",
    "HPUDeepSpeedStrategy": "hpu_deepspeed:HPUDeepSpeedStrategy",
    "HPUFSDPPrecision": "hpu_fsdp:HPUFSDPPrecision",
    "HPUFSDPStrategy": "hpu_fsdp:HPUFSDPStrategy",
    "HPUParallelStrategy": "hpu_ddp:HPUParallelStrategy",
    "HPUPrecisionPlugin": "hpu_precision:HPUPrecisionPlugin",
    "HPUProfiler": "hpu_profiler:HPUProfiler",
    "SingleHPUStrategy": "hpu_core:SingleHPUStrategy",
}

# Names for Fabric, some of which are the same.
FABRIC: Final[Mapping[str, str]] = {
    "HPUAccelerator": "hpu_core:HPUAccelerator",
    "HPUCheckpointIO": "hpu_core:HPUCheckpointIO",
    "HPUDDPStrategy": "hpu_ddp:FabricHPUDDPStrategy",
    "HPUFSDPPrecision": "hpu_fsdp:FabricHPUFSDPPrecision",
    "HPUFSDPStrategy": "hpu_fsdp:FabricHPUFSDPStrategy",
    "HPUParallelStrategy": "hpu_ddp:FabricHPUParallelStrategy",
    "HPUPrecision": "hpu_precision:FabricHPUPrecision",
    "SingleHPUStrategy": "hpu_core.fabric:FabricSingleHPUStrategy",
}
