"""DeepSpeed's configuration: what is filled in, what is left out, and what it offloads."""

from collections.abc import Mapping
from typing import Any, Final

Config = dict[str, Any]

PARTITIONS_PARAMETERS: Final = 3
"""The stage of ZeRO that partitions parameters."""

_OFFLOAD_SECTIONS: Final = ("offload_optimizer", "offload_param")
_AUTO: Final = "auto"
# The sections whose "auto" needs a value from the user.
_NEED_VALUES: Final = ("optimizer", "scheduler")


def remove_auto(config: Config) -> list[str]:
    """Remove the options, in place, whose value is "auto", and return their names, such as "fp16.enabled".

    Hugging Face's Trainer replaces "auto" by its own arguments. Without the options, Lightning sets those that the
    Trainer or Fabric knows (batch sizes, accumulation, clipping, precision), and DeepSpeed has defaults for the others.
    A section that is left empty is removed as well. Those of the optimizer and the scheduler stay, because they need
    values, see `validate_auto`; so does "enabled", see `resolve_precision`.
    """
    removed = []
    for name, value in list(config.items()):
        inner = remove_auto(value) if isinstance(value, dict) and name not in _NEED_VALUES else []
        removed += [f"{name}.{option}" for option in inner]
        if value == _AUTO and name != "enabled":
            removed.append(name)
        elif value or not inner:
            continue
        del config[name]
    return removed


def resolve_precision(config: Config, precision: str) -> None:
    """Replace "auto" as the value of `fp16.enabled` and `bf16.enabled`, in place, by whether it is the precision."""
    for section, prefix in {"fp16": "16", "bf16": "bf16"}.items():
        options = config.get(section)
        if isinstance(options, dict) and options.get("enabled") == _AUTO:
            options["enabled"] = precision.startswith(prefix)


def validate_auto(config: Config) -> None:
    """Raise a ValueError if the optimizer or the scheduler of a configuration, which are used, have "auto" options."""
    names = [
        f"{section}.params.{name}"
        for section in _NEED_VALUES
        for name, value in (config.get(section) or {}).get("params", {}).items()
        if value == _AUTO
    ]
    if names:
        raise ValueError(
            f"{', '.join(map(repr, names))} in the DeepSpeed config must have a value, got 'auto', which Hugging "
            "Face's Trainer replaces by its own arguments: write the values, or remove the section and return an "
            "optimizer and a scheduler from `configure_optimizers`"
        )


def fill_defaults(config: Config) -> None:
    """Add options to a configuration, in place, that DeepSpeed or Lightning need and the user may leave out."""
    # As the strategy's argument of this name, and as Hugging Face's Trainer. DeepSpeed would accept only its own Adam.
    config.setdefault("zero_allow_untested_optimizer", True)
    # Its timer for the throughput log would wait for the device twice in each step, and keep Python's lock meanwhile.
    timers = config.setdefault("timers", {})
    if isinstance(timers, dict) and isinstance(throughput := timers.setdefault("throughput", {}), dict):
        throughput.setdefault("synchronized", False)
    # By default DeepSpeed offloads only its CPU Adam, which needs a compiler. This allows the module's own optimizer.
    if offload_device(config, "offload_optimizer") != "none" and "optimizer" not in config:
        config.setdefault("zero_force_ds_cpu_optimizer", False)


def offloads(config: Config, device: str) -> dict[str, Config]:
    """Return the sections "offload_param" and "offload_optimizer" that offload to a device."""
    return {
        section: config["zero_optimization"][section]
        for section in _OFFLOAD_SECTIONS
        if offload_device(config, section) == device
    }


def offload_device(config: Mapping[str, Any], section: str) -> Any:
    """Return the device, "cpu", "nvme" or "none", of the section "offload_optimizer" or "offload_param"."""
    zero = config.get("zero_optimization")
    offload = zero.get(section) if isinstance(zero, Mapping) else None
    return offload.get("device", "none") if isinstance(offload, Mapping) else "none"
