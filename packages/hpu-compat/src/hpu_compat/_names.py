"""Table of the archived package's modules that only re-export names; its other modules are files.

An object is written "module:name".
"""

import functools
from collections.abc import Mapping
from typing import Final

# Exported names by module below `lightning_habana.`. A package exports the names of the modules below it.
EXPORTED: Final[Mapping[str, Mapping[str, str]]] = {
    "fabric": {},
    "fabric.accelerator": {"HPUAccelerator": "hpu_core:HPUAccelerator"},
    "fabric.plugins": {},
    "fabric.plugins.fsdp_precision": {"HPUFSDPPrecision": "hpu_fsdp:FabricHPUFSDPPrecision"},
    "fabric.plugins.io_plugin": {"HPUCheckpointIO": "hpu_core:HPUCheckpointIO"},
    "fabric.plugins.precision": {"HPUPrecision": "hpu_precision:FabricHPUPrecision"},
    "fabric.strategies": {},
    "fabric.strategies.ddp": {"HPUDDPStrategy": "hpu_ddp:FabricHPUDDPStrategy"},
    "fabric.strategies.fsdp": {"HPUFSDPStrategy": "hpu_fsdp:FabricHPUFSDPStrategy"},
    "fabric.strategies.parallel": {"HPUParallelStrategy": "hpu_ddp:FabricHPUParallelStrategy"},
    "fabric.strategies.single": {"SingleHPUStrategy": "hpu_core.fabric:FabricSingleHPUStrategy"},
    "pytorch": {},
    "pytorch.accelerator": {"HPUAccelerator": "hpu_core:HPUAccelerator"},
    "pytorch.datamodule": {},
    "pytorch.datamodule.dataloaders": {},
    "pytorch.datamodule.dataloaders.resnet_media_pipe": {},
    "pytorch.datamodule.datamodule": {"HPUDataModule": "hpu_compat._datamodule:HPUDataModule"},
    "pytorch.plugins": {},
    "pytorch.plugins.deepspeed_precision": {"HPUDeepSpeedPrecisionPlugin": "hpu_deepspeed:HPUDeepSpeedPrecisionPlugin"},
    "pytorch.plugins.fsdp_precision": {"HPUFSDPPrecision": "hpu_fsdp:HPUFSDPPrecision"},
    "pytorch.plugins.io_plugin": {"HPUCheckpointIO": "hpu_core:HPUCheckpointIO"},
    "pytorch.plugins.precision": {"HPUPrecisionPlugin": "hpu_precision:HPUPrecisionPlugin"},
    "pytorch.plugins.quant_config": {},
    "pytorch.profiler": {},
    "pytorch.profiler.profiler": {"HPUProfiler": "hpu_profiler:HPUProfiler"},
    "pytorch.strategies": {},
    "pytorch.strategies.ddp": {"HPUDDPStrategy": "hpu_ddp:HPUDDPStrategy"},
    "pytorch.strategies.deepspeed": {"HPUDeepSpeedStrategy": "hpu_deepspeed:HPUDeepSpeedStrategy"},
    "pytorch.strategies.fsdp": {"HPUFSDPStrategy": "hpu_fsdp:HPUFSDPStrategy"},
    "pytorch.strategies.parallel": {"HPUParallelStrategy": "hpu_ddp:HPUParallelStrategy"},
    "pytorch.strategies.single": {"SingleHPUStrategy": "hpu_core:SingleHPUStrategy"},
    "utils": {},
}

# Other names of these modules that programs import.
UNEXPORTED: Final[Mapping[str, Mapping[str, str]]] = {
    "pytorch.datamodule.dataloaders.resnet_media_pipe": {
        "MediaApiDataLoader": "hpu_compat._datamodule:MediaApiDataLoader"
    },
    # The archived module imported it from the vendor's package.
    "pytorch.datamodule.datamodule": {"HabanaDataLoader": "hpu_compat._datamodule:MediaApiDataLoader"},
}


@functools.cache
def exports(module: str) -> dict[str, str]:
    """Return the names that a module of the table exports, and the object behind each."""
    children = (names for other, names in EXPORTED.items() if f"{other}.".startswith(f"{module}."))
    return {name: target for names in children for name, target in names.items()}
