"""ZeRO in a plan. DeepSpeed runs itself, its copies to and from the host included."""

from __future__ import annotations

from typing import Any, Final

#: End of the names of strategies that keep the optimizer on the host.
OFFLOAD: Final = "_offload"
OFFLOADED: Final = "The optimizer runs on the host: the time of that, and of the transfers, is not predicted."
_SECTIONS: Final = ("offload_optimizer", "offload_param")


def name_of(config: dict[str, Any]) -> str:
    """Return the strategy of a configuration of DeepSpeed.

    >>> name_of({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})
    'deepspeed_stage_3_offload'
    """
    options = config.get("zero_optimization", {})
    device = (options.get(_SECTIONS[0]) or {}).get("device", "none")
    return f"deepspeed_stage_{options.get('stage', 2)}{'' if device == 'none' else OFFLOAD}"


def keep_in_memory(config: dict[str, Any]) -> None:
    """Change a configuration of DeepSpeed to one that writes no files and compiles nothing.

    What it would keep in files is kept in the host's memory, which a plan does not touch. Its Adam of the host, which
    computes on that memory, is torch's.
    """
    options = config.get("zero_optimization", {})
    found = [options[name] for name in _SECTIONS if (options.get(name) or {}).get("device", "none") != "none"]
    for section in found:
        section.update(device="cpu", pin_memory=False)
    if found and "optimizer" in config:
        config["zero_force_ds_cpu_optimizer"] = False
        config["optimizer"].setdefault("params", {})["torch_adam"] = True
