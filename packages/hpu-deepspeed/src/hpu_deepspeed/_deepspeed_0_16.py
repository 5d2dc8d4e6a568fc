"""Patches for DeepSpeed 0.16 and older: Intel's forks, and the upstream releases of their time.

Where DeepSpeed has what is missing, each patch changes nothing.
"""

import importlib
import operator
import os
from typing import Any, Final

# Variables that lightning-habana set for Intel's fork. Its older releases read the first instead of DS_ACCELERATOR.
_FORK_ENV: Final = {
    "DEEPSPEED_USE_HPU": "true",
    "PT_HPU_LAZY_ACC_PAR_MODE": "0",
    "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0",
}


def set_fork_env(version: str) -> None:
    """Set the environment variables of Intel's fork, unless they are set, before it is imported."""
    if "hpu.synapse" in version:
        for name, value in _FORK_ENV.items():
            os.environ.setdefault(name, value)


def patch(accelerator: Any) -> None:
    """Patch the imported DeepSpeed."""
    # DeepSpeed before 0.14.5 names rank 1's device "hpu:1", but each process has a single device with index 0.
    accelerator.device_name = _device_name
    _patch_bf16_optimizer()


def _device_name(device_index: int | None = None) -> str:  # noqa: ARG001 - DeepSpeed passes an index.
    return "hpu"


def _patch_bf16_optimizer() -> None:
    """Add the attributes that Lightning uses to DeepSpeed's BF16 optimizer for stage 0.

    DeepSpeed 0.14 lacks `zero_grad` and `state`, DeepSpeed 0.16 lacks `zero_grad`.
    """
    optimizer_class: Any = importlib.import_module("deepspeed.runtime.bf16_optimizer").BF16_Optimizer
    if not hasattr(optimizer_class, "zero_grad"):
        optimizer_class.zero_grad = _zero_grad
    if not hasattr(optimizer_class, "state"):
        optimizer_class.state = property(operator.attrgetter("optimizer.state"))


def _zero_grad(optimizer: Any, set_to_none: bool = True) -> None:  # noqa: ARG001 - the signature of torch's optimizers.
    optimizer.clear_lp_grads()
    optimizer.clear_hp_grads()
