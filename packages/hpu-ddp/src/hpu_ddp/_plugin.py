"""What hpu-core is told about this package."""

from hpu_core.plugins import ClassPaths, Plugin

PLUGIN = Plugin(
    strategies={
        "hpu_parallel": ClassPaths("hpu_ddp.strategy:HPUParallelStrategy", "hpu_ddp.fabric:FabricHPUParallelStrategy"),
        "hpu_ddp": ClassPaths("hpu_ddp.strategy:HPUDDPStrategy", "hpu_ddp.fabric:FabricHPUDDPStrategy"),
    },
    default_multi_device="hpu_parallel",
    aliases={"ddp": "hpu_ddp"},
)
