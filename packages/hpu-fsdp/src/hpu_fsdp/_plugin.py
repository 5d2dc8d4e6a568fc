"""Entry point `hpu_core.plugins`: the strategies that hpu-core registers; imports neither torch nor Lightning."""

from typing import Final

from hpu_core.plugins import ClassPaths, Plugin

_FSDP: Final = ("hpu_fsdp.strategy:HPUFSDPStrategy", "hpu_fsdp.fabric:FabricHPUFSDPStrategy")

PLUGIN: Final = Plugin(
    strategies={
        "hpu_fsdp": ClassPaths(*_FSDP),
        "hpu_fsdp_offload": ClassPaths(*_FSDP, options={"cpu_offload": True}),
        "hpu_model_parallel": ClassPaths(
            "hpu_fsdp.model_parallel:HPUModelParallelStrategy",
            "hpu_fsdp.fabric_model_parallel:FabricHPUModelParallelStrategy",
        ),
    },
    aliases={"fsdp": "hpu_fsdp", "fsdp_cpu_offload": "hpu_fsdp_offload"},
    replacements={"FSDPStrategy": "hpu_fsdp", "ModelParallelStrategy": "hpu_model_parallel"},
)
