"""Names of the archived package by module, and the class behind each, as "module:name"."""

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

_PARALLEL: Final = ("HPUDDPStrategy", "HPUFSDPStrategy", "HPUParallelStrategy", "SingleHPUStrategy")

# Modules that only re-export names, below `lightning_habana.`; names below `fabric` are Fabric's.
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "fabric": tuple(FABRIC),
    "fabric.accelerator": ("HPUAccelerator",),
    "fabric.plugins": ("HPUCheckpointIO", "HPUFSDPPrecision", "HPUPrecision"),
    "fabric.plugins.fsdp_precision": ("HPUFSDPPrecision",),
    "fabric.plugins.io_plugin": ("HPUCheckpointIO",),
    "fabric.plugins.precision": ("HPUPrecision",),
    "fabric.strategies": _PARALLEL,
    "fabric.strategies.ddp": ("HPUDDPStrategy",),
    "fabric.strategies.fsdp": ("HPUFSDPStrategy",),
    "fabric.strategies.parallel": ("HPUParallelStrategy",),
    "fabric.strategies.single": ("SingleHPUStrategy",),
    "pytorch": tuple(TRAINER),
    "pytorch.accelerator": ("HPUAccelerator",),
    "pytorch.datamodule": ("HPUDataModule",),
    "pytorch.datamodule.dataloaders": (),
    "pytorch.datamodule.dataloaders.resnet_media_pipe": ("MediaApiDataLoader",),
    "pytorch.datamodule.datamodule": ("HPUDataModule",),
    "pytorch.plugins": ("HPUCheckpointIO", "HPUDeepSpeedPrecisionPlugin", "HPUFSDPPrecision", "HPUPrecisionPlugin"),
    "pytorch.plugins.deepspeed_precision": ("HPUDeepSpeedPrecisionPlugin",),
    "pytorch.plugins.fsdp_precision": ("HPUFSDPPrecision",),
    "pytorch.plugins.io_plugin": ("HPUCheckpointIO",),
    "pytorch.plugins.precision": ("HPUPrecisionPlugin",),
    "pytorch.plugins.quant_config": (),
    "pytorch.profiler": ("HPUProfiler",),
    "pytorch.profiler.profiler": ("HPUProfiler",),
    "pytorch.strategies": (*_PARALLEL, "HPUDeepSpeedStrategy"),
    "pytorch.strategies.ddp": ("HPUDDPStrategy",),
    "pytorch.strategies.deepspeed": ("HPUDeepSpeedStrategy",),
    "pytorch.strategies.fsdp": ("HPUFSDPStrategy",),
    "pytorch.strategies.parallel": ("HPUParallelStrategy",),
    "pytorch.strategies.single": ("SingleHPUStrategy",),
    "utils": (),
}
