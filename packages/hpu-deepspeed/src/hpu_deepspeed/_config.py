"""DeepSpeed's configuration: what is filled in, what is left out, and what it offloads."""

from typing import Any, Final

Config = dict[str, Any]

PARTITIONS_PARAMETERS: Final = 3
"""The stage of ZeRO that partitions parameters."""

_OFFLOAD_SECTIONS: Final = ("offload_optimizer", "offload_param")
_AUTO: Final = "auto"
# The sections that mean something as a whole only.
_ATOMIC_SECTIONS: Final = {"optimizer", "scheduler", "fp16", "bf16", "params"}


def remove_auto(config: Config) -> list[str]:
    """Remove the options, in place, whose value is "auto", and return their names, such as "fp16.enabled".

    Hugging Face's Trainer replaces "auto" by its own arguments. Without the options, Lightning sets those that the
    Trainer or Fabric knows (batch sizes, accumulation, clipping), and DeepSpeed has defaults for the others. A section
    of an optimizer, a scheduler or a precision is removed as a whole, so that the module's or the Trainer's counts.
    """
    removed = []
    for name, value in list(config.items()):
        inner = remove_auto(value) if isinstance(value, dict) else []
        removed += [f"{name}.{option}" for option in inner]
        if value == _AUTO:
            removed.append(name)
        elif not inner or (value and name not in _ATOMIC_SECTIONS):
            continue
        del config[name]
    return removed


def fill_defaults(config: Config) -> None:
    """Add options to a configuration, in place, that DeepSpeed or Lightning need and the user may leave out."""
    # As the strategy's argument of this name, and as Hugging Face's Trainer. DeepSpeed would accept only its own Adam.
    config.setdefault("zero_allow_untested_optimizer", True)
    # Its timer for the throughput log would wait for the device twice in each step, and keep Python's lock meanwhile.
    config.setdefault("timers", {}).setdefault("throughput", {}).setdefault("synchronized", False)
    # By default DeepSpeed offloads only its CPU Adam, which needs a compiler. This allows the module's own optimizer.
    if "offload_optimizer" in offloads(config, "cpu", "nvme") and "optimizer" not in config:
        config.setdefault("zero_force_ds_cpu_optimizer", False)


def offloads(config: Config, *devices: str) -> dict[str, Config]:
    """Return the sections "offload_param" and "offload_optimizer" that offload to one of the devices."""
    zero = config.get("zero_optimization") or {}
    sections = {section: zero.get(section) or {} for section in _OFFLOAD_SECTIONS}
    return {section: options for section, options in sections.items() if options.get("device") in devices}
