"""Validation of DeepSpeed's configuration before training starts; DeepSpeed ignores unknown top-level options."""

import difflib
import importlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Final

from hpu_deepspeed import _deepspeed
from hpu_deepspeed._lightning import rank_zero_warn

Config = dict[str, Any]

_STAGES: Final = (0, 1, 2, 3)
_OFFLOAD_SECTIONS: Final = {"offload_optimizer": "offload_optimizer_device", "offload_param": "offload_params_device"}
_DEVICES: Final = ("none", "cpu", "nvme")
_AUTO: Final = "auto"
_NEED_VALUES: Final = ("optimizer", "scheduler")

# Modules whose string constants are the names of DeepSpeed's options. Not every release has all of them.
_CONSTANT_MODULES: Final = (
    "deepspeed.runtime.constants",
    "deepspeed.runtime.activation_checkpointing.config",
    "deepspeed.runtime.data_pipeline.constants",
    "deepspeed.runtime.swap_tensor.constants",
    "deepspeed.autotuning.constants",
    "deepspeed.compression.constants",
    "deepspeed.elasticity.constants",
    "deepspeed.profiling.constants",
    "deepspeed.monitor.constants",
)
# Options without such a constant in one release or another, from DeepSpeed's documentation and sources.
_OTHER_OPTIONS: Final = """
    activation_checkpointing aio allgather_bucket_size amp autotuning checkpoint comet comms_logger compile
    compression_training csv_monitor curriculum_learning data_efficiency data_parallel_size data_types domino
    eigenvalue elasticity expert_parallel flops_profiler graph_harvesting hybrid_engine monitor_config nebula
    pipeline progressive_layer_drop quantize_training sequence_parallel_size sparse_attention sparse_gradients
    swap_tensor tensor_parallel tensorboard timers torch_autocast wandb weight_quantization zenflow
    zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_optimization
"""


def validate_source(config: object) -> None:
    """Raise an error if a strategy's `config` argument is neither a dict nor the path of a file with a JSON object.

    If it is None, the path in PL_DEEPSPEED_CONFIG_PATH is checked, if set. Lightning raises for a missing file.
    """
    source = os.environ.get("PL_DEEPSPEED_CONFIG_PATH") if config is None else config
    if source is None or isinstance(source, Mapping):
        return
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"`config` must be a dict or the path of a JSON file, got {source!r}")
    path = Path(source)
    if not path.is_file():
        return
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"the DeepSpeed config {str(path)!r} must be a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(  # noqa: TRY004 - the argument, a path, is of the right type; the file's content is wrong.
            f"the DeepSpeed config {str(path)!r} must contain a JSON object, got {content!r}"
        )


def validate(config: Config, more_options: frozenset[str]) -> None:
    """Raise an error for invalid options that do not depend on the Trainer.

    Unknown options at the top level and in `aio` are a warning, because DeepSpeed ignores them and a newer release may
    read options that are not listed here. Those in `zero_optimization` are an error, as in DeepSpeed itself.

    Args:
        config: DeepSpeed's configuration.
        more_options: Names of options at the top level that are known as well.
    """
    _warn_unknown(config, training_options() | more_options, "the DeepSpeed config")
    # Lightning writes `thread_count`, the name in older DeepSpeed releases.
    aio = _string_constants("deepspeed.runtime.swap_tensor.constants") | {"thread_count"}
    _warn_unknown(config.get("aio") or {}, aio, "`aio` in the DeepSpeed config")
    zero = config.get("zero_optimization", {})
    if isinstance(zero, bool):
        # DeepSpeed's deprecated format for stage 1.
        return
    if not isinstance(zero, Mapping):
        raise TypeError(f"`zero_optimization` in the DeepSpeed config must be a dict, got {zero!r}")
    stage = zero.get("stage", 0)
    if isinstance(stage, bool) or stage not in _STAGES:
        raise ValueError(f"`stage` must be 0, 1, 2 or 3, got {stage!r}")
    model = importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig
    if unknown := _describe_unknown(zero, field_names(model)):
        raise ValueError(
            f"`zero_optimization` in the DeepSpeed config has unknown options: {unknown}; DeepSpeed "
            f"{_deepspeed.version()} does not accept them"
        )
    for section, argument in _OFFLOAD_SECTIONS.items():
        if not isinstance(zero.get(section, {}), (Mapping, NoneType)):
            raise TypeError(f"`{section}` in the DeepSpeed config must be a dict, got {zero[section]!r}")
        device = offload_device(config, section)
        if device not in _DEVICES:
            raise ValueError(f"`{argument}` must be 'cpu' or 'nvme', got {device!r}")
    if offload_device(config, "offload_param") != "none" and stage != _STAGES[-1]:
        raise ValueError(f"`offload_parameters` needs `stage=3`, which partitions parameters, got stage {stage}")
    if offload_device(config, "offload_optimizer") == "nvme" and stage != _STAGES[-1]:
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


def validate_batch_sizes(config: Config, world_size: int) -> None:
    """Raise a ValueError if the total batch size is not the product of micro batch, accumulation steps and ranks."""
    total = config.get("train_batch_size")
    micro, steps = config.get("train_micro_batch_size_per_gpu"), config.get("gradient_accumulation_steps", 1)
    if total is None or micro is None or total == micro * steps * world_size:
        return
    raise ValueError(
        f"`train_batch_size` in the DeepSpeed config must be `train_micro_batch_size_per_gpu` x "
        f"`accumulate_grad_batches` x the number of cards, which is {micro} x {steps} x {world_size} = "
        f"{micro * steps * world_size}, got {total}: correct one of them, or leave `train_batch_size` out"
    )


def validate_gradient_clipping(config: Config, gradient_clip_val: float | None) -> None:
    """Raise a ValueError if the Trainer and the configuration clip gradients to different values."""
    configured = config.get("gradient_clipping")
    if gradient_clip_val is not None and configured is not None and float(configured) != float(gradient_clip_val):
        raise ValueError(
            f"`gradient_clip_val={gradient_clip_val!r}` of the Trainer and `gradient_clipping: {configured!r}` in the "
            "DeepSpeed config must be the same: leave one of them out"
        )


def require_compiler(config: Config) -> None:
    """Raise a RuntimeError if DeepSpeed would compile its CPU Adam, and the C++ compiler or ninja is missing."""
    if offload_device(config, "offload_optimizer") == "none" or not _uses_cpu_adam(config):
        return
    compiler = os.environ.get("CXX", "c++")
    missing = [name for name in (compiler, "ninja") if shutil.which(name) is None]
    if missing:
        raise RuntimeError(
            f"DeepSpeed compiles its Adam for the CPU on first use, which needs {' and '.join(missing)}: install what "
            "is missing, or return an optimizer of torch's from `configure_optimizers`"
        )


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


def _uses_cpu_adam(config: Config) -> bool:
    """Return whether the configuration makes DeepSpeed create an Adam, which it compiles for the CPU."""
    optimizer = config.get("optimizer")
    if not isinstance(optimizer, Mapping) or optimizer.get("params", {}).get("torch_adam"):
        return False
    return str(optimizer.get("type", "")).lower() in {"adam", "adamw"}


def _warn_unknown(options: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    if unknown := _describe_unknown(options, known):
        rank_zero_warn(f"{where} has unknown options: {unknown}; DeepSpeed {_deepspeed.version()} may ignore them")


def _describe_unknown(options: Mapping[str, Any], known: frozenset[str]) -> str:
    """Return the unknown options, each with the nearest known one; empty if there are none."""
    descriptions = []
    for name in sorted(options.keys() - known):
        close = difflib.get_close_matches(name, known, n=1)
        descriptions.append(f"{name!r} (did you mean {close[0]!r}?)" if close else repr(name))
    return ", ".join(descriptions)


def training_options() -> frozenset[str]:
    """Return the names of the known top-level options of the engine that trains."""
    return frozenset(_OTHER_OPTIONS.split()).union(*map(_string_constants, _CONSTANT_MODULES))


def field_names(model: Any) -> frozenset[str]:
    """Return the names and aliases of the fields of one of DeepSpeed's models."""
    # `model_fields` is pydantic 2's name, `__fields__` pydantic 1's.
    fields = getattr(model, "model_fields", None) or model.__fields__
    return frozenset(fields) | {field.alias for field in fields.values() if field.alias}


def _string_constants(module: str) -> frozenset[str]:
    """Return the string constants of a DeepSpeed module; empty if this release does not have it."""
    try:
        constants = vars(importlib.import_module(module))
    except ModuleNotFoundError:
        return frozenset()
    return frozenset(value for name, value in constants.items() if name.isupper() and isinstance(value, str))
