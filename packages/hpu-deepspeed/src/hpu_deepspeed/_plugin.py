"""Entry point `hpu_core.plugins`: the strategies that hpu-core registers; imports neither torch nor Lightning."""

from collections.abc import Mapping
from typing import Any, Final

from hpu_core.plugins import ClassPaths, Plugin

_NVME: Final = {"remote_device": "nvme", "offload_params_device": "nvme", "offload_optimizer_device": "nvme"}

# The same options as Lightning's names for CUDA. Without a suffix, the strategy's default applies, stage 2.
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {},
    "_stage_1": {"stage": 1},
    "_stage_2": {"stage": 2},
    "_stage_2_offload": {"stage": 2, "offload_optimizer": True},
    "_stage_3": {"stage": 3},
    "_stage_3_offload": {"stage": 3, "offload_optimizer": True, "offload_parameters": True},
    "_stage_3_offload_nvme": {"stage": 3, "offload_optimizer": True, "offload_parameters": True, **_NVME},
}

PLUGIN: Final = Plugin(
    strategies={
        f"hpu_deepspeed{suffix}": ClassPaths(
            "hpu_deepspeed.strategy:HPUDeepSpeedStrategy",
            "hpu_deepspeed.fabric:FabricHPUDeepSpeedStrategy",
            options=options,
        )
        for suffix, options in _OPTIONS.items()
    },
    aliases={f"deepspeed{suffix}": f"hpu_deepspeed{suffix}" for suffix in _OPTIONS},
    replacements={"DeepSpeedStrategy": "hpu_deepspeed"},
)
