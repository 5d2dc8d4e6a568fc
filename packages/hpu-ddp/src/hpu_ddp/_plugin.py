"""What hpu-core is told about this package."""

from hpu_core.registration.plugins import Classes, Plugin

PLUGIN = Plugin(
    strategies={
        "hpu_parallel": Classes("hpu_ddp.strategy:HPUParallelStrategy", "hpu_ddp.fabric:FabricHPUParallelStrategy"),
        "hpu_ddp": Classes("hpu_ddp.strategy:HPUDDPStrategy", "hpu_ddp.fabric:FabricHPUDDPStrategy"),
    },
    several_cards="hpu_parallel",
    stands_for={"ddp": "hpu_ddp"},
)
