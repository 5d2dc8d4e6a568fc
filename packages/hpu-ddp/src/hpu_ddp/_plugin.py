"""Entry point `hpu_core.plugins`: the strategies that hpu-core registers; imports neither torch nor Lightning."""

from collections.abc import Mapping
from typing import Any, Final

from hpu_core.plugins import ClassPaths, Plugin

# The same suffixes and options as Lightning's names "ddp...".
_START_METHODS: Final[Mapping[str, str]] = {"": "popen", "_spawn": "spawn", "_fork": "fork", "_notebook": "fork"}
_UNUSED_PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {},
    "_find_unused_parameters_false": {"find_unused_parameters": False},
    "_find_unused_parameters_true": {"find_unused_parameters": True},
}
_DDP: Final = {
    f"hpu_ddp{start}{unused}": ClassPaths(
        "hpu_ddp.strategy:HPUDDPStrategy",
        "hpu_ddp.fabric:FabricHPUDDPStrategy",
        options={"start_method": start_method, **options},
    )
    for start, start_method in _START_METHODS.items()
    for unused, options in _UNUSED_PARAMETERS.items()
}

PLUGIN: Final = Plugin(
    strategies={
        "hpu_parallel": ClassPaths("hpu_ddp.strategy:HPUParallelStrategy", "hpu_ddp.fabric:FabricHPUParallelStrategy"),
        **_DDP,
    },
    default_multi_device="hpu_parallel",
    default_notebook="hpu_ddp_notebook",
    aliases={name.removeprefix("hpu_"): name for name in _DDP},
    replacements={"DDPStrategy": "hpu_ddp"},
)
