"""DeepSpeed's configuration, checked before a training starts: DeepSpeed itself passes over what it does not know."""

import difflib
import importlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Final

from hpu_deepspeed import _vendor

Config = dict[str, Any]

_STAGES: Final = (0, 1, 2, 3)
_OFFLOADS: Final = {"offload_optimizer": "offload_optimizer_device", "offload_param": "offload_params_device"}
_DEVICES: Final = ("none", "cpu", "nvme")

# Where DeepSpeed's releases keep the names of their options, as values of module-level constants.
_CONSTANTS: Final = (
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
# Those whose names stand in no constant, on one release or another, from DeepSpeed's documentation and its sources.
_FURTHER: Final = frozenset(
    {
        "activation_checkpointing",
        "aio",
        "allgather_bucket_size",
        "amp",
        "autotuning",
        "checkpoint",
        "comet",
        "comms_logger",
        "compile",
        "compression_training",
        "csv_monitor",
        "curriculum_learning",
        "data_efficiency",
        "data_parallel_size",
        "data_types",
        "domino",
        "eigenvalue",
        "elasticity",
        "expert_parallel",
        "flops_profiler",
        "graph_harvesting",
        "hybrid_engine",
        "monitor_config",
        "nebula",
        "pipeline",
        "progressive_layer_drop",
        "quantize_training",
        "sequence_parallel_size",
        "sparse_attention",
        "sparse_gradients",
        "swap_tensor",
        "tensor_parallel",
        "tensorboard",
        "timers",
        "torch_autocast",
        "wandb",
        "weight_quantization",
        "zenflow",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
        "zero_optimization",
    }
)


def check_source(given: object) -> None:
    """Check what a strategy is given to read its configuration from.

    Args:
        given: The configuration, or the path of a file; None for that of PL_DEEPSPEED_CONFIG_PATH, if it is set.

    Raises:
        TypeError: It is neither.
        ValueError: The file is not JSON, or no dict.
    """
    source = os.environ.get("PL_DEEPSPEED_CONFIG_PATH") if given is None else given
    if source is None or isinstance(source, Mapping):
        return
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"`config` must be a dict or the path of a JSON file, got {source!r}")
    path = Path(source)
    if not path.is_file():
        # Lightning says so.
        return
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"the DeepSpeed config {str(path)!r} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(  # noqa: TRY004 - as for a file that is not JSON: the argument, a path, is of the right type.
            f"the DeepSpeed config {str(path)!r} must be a dict, got {content!r}"
        )


def check(config: Config) -> None:
    """Check what does not depend on the training.

    Args:
        config: DeepSpeed's configuration.

    Raises:
        TypeError: A part of it is of the wrong type.
        ValueError: It has an option that DeepSpeed does not know, or a value that it does not take.
    """
    _check_names(config, _known_options(), "the DeepSpeed config")
    # Lightning writes one of them by the name that it has in older DeepSpeeds.
    aio = _constants("deepspeed.runtime.swap_tensor.constants") | {"thread_count"}
    _check_names(config.get("aio") or {}, aio, "`aio` in the DeepSpeed config")
    zero = config.get("zero_optimization", {})
    if isinstance(zero, bool):
        # DeepSpeed's oldest spelling of stage 1.
        return
    if not isinstance(zero, Mapping):
        raise TypeError(f"`zero_optimization` in the DeepSpeed config must be a dict, got {zero!r}")
    stage = zero.get("stage", 0)
    if isinstance(stage, bool) or stage not in _STAGES:
        raise ValueError(f"`stage` must be 0, 1, 2 or 3, got {stage!r}")
    model = importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig
    # pydantic 2 has `model_fields`, pydantic 1 `__fields__`.
    fields = getattr(model, "model_fields", None) or model.__fields__
    names = set(fields) | {field.alias for field in fields.values() if field.alias}
    _check_names(zero, frozenset(names), "`zero_optimization` in the DeepSpeed config")
    for part, argument in _OFFLOADS.items():
        if not isinstance(zero.get(part, {}), (Mapping, NoneType)):
            raise TypeError(f"`{part}` in the DeepSpeed config must be a dict, got {zero[part]!r}")
        device = offload_device(config, part)
        if device not in _DEVICES:
            raise ValueError(f"`{argument}` must be 'cpu' or 'nvme', got {device!r}")
    if offload_device(config, "offload_param") != "none" and stage != _STAGES[-1]:
        raise ValueError(f"`offload_parameters` needs `stage=3`, which alone partitions parameters, got stage {stage}")
    if offload_device(config, "offload_optimizer") == "nvme" and stage != _STAGES[-1]:
        raise ValueError(
            f"`offload_optimizer_device='nvme'` needs `stage=3`, got stage {stage}, in which DeepSpeed would leave the "
            "optimizer in memory: offload to 'cpu', or take stage 3"
        )


def complete(config: Config) -> None:
    """Add what a configuration may leave out, and is needed.

    Args:
        config: DeepSpeed's configuration, which is changed.
    """
    # Lightning reads it when a module is tested in stage 3; it is DeepSpeed's own default.
    config.setdefault("zero_allow_untested_optimizer", False)
    # So that an optimizer of the program's may be offloaded, which DeepSpeed refuses unless told: its own need a
    # compiler.
    if offload_device(config, "offload_optimizer") != "none" and "optimizer" not in config:
        config.setdefault("zero_force_ds_cpu_optimizer", False)


def check_batch_sizes(config: Config, world_size: int) -> None:
    """Check that the sizes of a batch agree.

    Args:
        config: DeepSpeed's configuration, complete.
        world_size: The number of processes.

    Raises:
        ValueError: They do not.
    """
    total = config.get("train_batch_size")
    micro, steps = config.get("train_micro_batch_size_per_gpu"), config.get("gradient_accumulation_steps", 1)
    if total is None or micro is None or total == micro * steps * world_size:
        return
    raise ValueError(
        f"`train_batch_size` in the DeepSpeed config must be `train_micro_batch_size_per_gpu` x "
        f"`accumulate_grad_batches` x the number of cards, which is {micro} x {steps} x {world_size} = "
        f"{micro * steps * world_size}, got {total}: correct one of them, or leave `train_batch_size` out"
    )


def check_clipping(config: Config, asked: float | None) -> None:
    """Check that gradients are to be clipped in one way only.

    Args:
        config: DeepSpeed's configuration.
        asked: The Trainer's `gradient_clip_val`.

    Raises:
        ValueError: The Trainer and the configuration say different values.
    """
    given = config.get("gradient_clipping")
    if asked is not None and given is not None and float(given) != float(asked):
        raise ValueError(
            f"`gradient_clip_val={asked!r}` of the Trainer and `gradient_clipping: {given!r}` in the DeepSpeed config "
            "must be the same: leave one of them out"
        )


def check_compiler(config: Config) -> None:
    """Check that what DeepSpeed compiles for an optimizer on the host can be compiled.

    Args:
        config: DeepSpeed's configuration.

    Raises:
        RuntimeError: A compiler is missing.
    """
    if offload_device(config, "offload_optimizer") == "none" or not _uses_cpu_adam(config):
        return
    compiler = os.environ.get("CXX", "c++")
    missing = [name for name in (compiler, "ninja") if shutil.which(name) is None]
    if missing:
        raise RuntimeError(
            "DeepSpeed's Adam for the CPU is compiled when it is first used, and this machine has no "
            f"{' and no '.join(missing)}: install it, or return an optimizer of torch's from `configure_optimizers`"
        )


def offloads(config: Config, device: str) -> dict[str, Config]:
    """Return those of "offload_param" and "offload_optimizer" that go to a device, with their options."""
    return {part: config["zero_optimization"][part] for part in _OFFLOADS if offload_device(config, part) == device}


def offload_device(config: Mapping[str, Any], part: str) -> Any:
    """Return where "offload_optimizer" or "offload_param" goes: "cpu", "nvme" or "none"."""
    zero = config.get("zero_optimization")
    offload = zero.get(part) if isinstance(zero, Mapping) else None
    return offload.get("device", "none") if isinstance(offload, Mapping) else "none"


def _uses_cpu_adam(config: Config) -> bool:
    """Tell whether DeepSpeed makes the optimizer itself, an Adam, which for the CPU is an operator to be compiled."""
    optimizer = config.get("optimizer")
    if not isinstance(optimizer, Mapping) or optimizer.get("params", {}).get("torch_adam"):
        return False
    return str(optimizer.get("type", "")).lower() in {"adam", "adamw"}


def _check_names(options: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(name for name in options if name not in known)
    if not unknown:
        return
    (first, *_), text = unknown, ", ".join(map(repr, unknown))
    close = difflib.get_close_matches(first, known, n=1)
    advice = f"did you mean {close[0]!r}?" if close else "remove what DeepSpeed has no use for"
    raise ValueError(f"{where} has options that DeepSpeed {_vendor.version()} does not know: {text}; {advice}")


def _known_options() -> frozenset[str]:
    """Return the names of options that the installed DeepSpeed may look for at the top of its configuration."""
    names = set(_FURTHER)
    return frozenset(names.union(*map(_constants, _CONSTANTS)))


def _constants(module: str) -> frozenset[str]:
    """Return the texts among the constants of a module of DeepSpeed; none if this release does not have it."""
    try:
        constants = vars(importlib.import_module(module))
    except ModuleNotFoundError:
        return frozenset()
    return frozenset(value for name, value in constants.items() if name.isupper() and isinstance(value, str))
