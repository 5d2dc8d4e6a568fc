"""Options of DeepSpeed's inference engine."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, Final

from hpu_deepspeed import _deepspeed
from hpu_deepspeed._config import PARTITIONS_PARAMETERS

#: Options of the engine that HPUDeepSpeedStrategy takes as arguments.
OPTIONS: Final[tuple[str, ...]] = ("dtype", "tensor_parallel", "replace_with_kernel_inject", "enable_cuda_graph")


def options_model() -> Any:
    """Return DeepSpeed's class of the engine's options."""
    _deepspeed.load()
    return importlib.import_module("deepspeed.inference.config").DeepSpeedInferenceConfig


def take_options(config: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the inference engine, and remove them from the configuration.

    Args:
        config: DeepSpeed's configuration, modified in place. "tensor_parallel" without "tp_size" stays, because it
            configures training.
        arguments: Arguments of the strategy by name, None if not given. They take precedence.

    Returns:
        Options for `deepspeed.init_inference`; empty if neither has any.

    Raises:
        TypeError: An argument is none of the engine's options.
        ValueError: The configuration partitions the parameters, or DeepSpeed does not accept an option.
    """
    # The signature has the short names of options that have two.
    if unknown := arguments.keys() - {*OPTIONS, *inspect.signature(options_model()).parameters}:
        raise TypeError(f"HPUDeepSpeedStrategy got unexpected arguments: {', '.join(sorted(unknown))}")
    trains_in_parallel = "tp_size" not in (config.get("tensor_parallel") or {})
    taken = [name for name in OPTIONS if name in config and not (name == "tensor_parallel" and trains_in_parallel)]
    options = {name: config.pop(name) for name in taken}
    options.update((name, value) for name, value in arguments.items() if value is not None)
    zero = config.get("zero_optimization")
    if options and isinstance(zero, Mapping) and zero.get("stage") == PARTITIONS_PARAMETERS:
        raise ValueError(
            f"`{next(iter(options))}` needs `stage` 0, 1 or 2, because DeepSpeed's inference engine does not partition "
            "parameters, got stage 3"
        )
    # Before ranks start; the engine reads them on the ranks.
    options_model()(**options)
    return options


def is_engine(model: object) -> bool:
    """Return whether a model is DeepSpeed's inference engine."""
    return isinstance(model, importlib.import_module("deepspeed.inference.engine").InferenceEngine)
