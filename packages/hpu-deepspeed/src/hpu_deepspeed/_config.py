"""DeepSpeed's configuration: what is checked before training starts, what is filled in, and what it offloads."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

Config = dict[str, Any]

PARTITIONS_PARAMETERS: Final = 3
"""The stage of ZeRO that partitions parameters."""

_OFFLOAD_SECTIONS: Final = ("offload_optimizer", "offload_param")
_AUTO: Final = "auto"
# The sections whose "auto" needs a value from the user.
_NEED_VALUES: Final = ("optimizer", "scheduler")


def validate(config: Config) -> None:
    """Check the options of ZeRO, which DeepSpeed reads on the ranks only.

    Raises:
        ValueError: DeepSpeed does not accept an option, or two of them do not fit.
    """
    zero = config.get("zero_optimization", {})
    if isinstance(zero, bool):
        # DeepSpeed's deprecated format for stage 1.
        return
    # DeepSpeed's own model of its options.
    importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig(**zero)
    stage = zero.get("stage", 0)
    if offload_device(config, "offload_param") != "none" and stage != PARTITIONS_PARAMETERS:
        raise ValueError(f"`offload_parameters` needs `stage=3`, which partitions parameters, got stage {stage}")
    if offload_device(config, "offload_optimizer") == "nvme" and stage != PARTITIONS_PARAMETERS:
        raise ValueError(
            f"`offload_optimizer_device='nvme'` needs `stage=3`, got stage {stage}, where DeepSpeed keeps the "
            "optimizer in memory: offload to 'cpu', or use stage 3"
        )


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


def validate_ranks(checkpoint: Path, config: Config, world_size: int) -> None:
    """Check that as many ranks resume from a checkpoint of ZeRO as have saved it, unless it is a universal one.

    Raises:
        ValueError: They are fewer or more; the message has the command that converts the checkpoint.
    """
    options = config.get("checkpoint")
    is_universal = isinstance(options, Mapping) and options.get("load_universal")
    # One file per rank; ranks of stage 0 have none.
    saved = len({path.name for path in checkpoint.glob("*/*zero_pp_rank_*_optim_states.pt")})
    if not saved or saved == world_size or is_universal:
        return
    raise ValueError(
        f"the checkpoint {str(checkpoint)!r} has the optimizer's partitions of {saved} cards, and this training has "
        f"{world_size}: resume on {saved}, or convert it to a universal checkpoint, `python -m "
        f"deepspeed.checkpoint.ds_to_universal --inject_missing_state --input_folder {checkpoint}/checkpoint "
        '--output_folder NEW/checkpoint`, resume from NEW, and add `"checkpoint": {"load_universal": true}` to the '
        "DeepSpeed config"
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
