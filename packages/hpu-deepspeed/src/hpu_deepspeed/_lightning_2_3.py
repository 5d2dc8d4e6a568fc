"""What the strategies need on Lightning 2.3 and older alone."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_deepspeed._lightning import MisconfigurationException

_LIGHTNING_2_1: Final = Version("2.1.dev0")


def init_deepspeed(strategy: Any) -> bool:
    """Initialize the engine and return True if this is Lightning 2.0, which requires CUDA in its own method.

    Raises:
        MisconfigurationException: The Trainer clips gradients by value.
    """
    if frameworks.current().version >= _LIGHTNING_2_1:
        return False
    trainer = strategy.lightning_module.trainer
    if str(trainer.gradient_clip_algorithm).lower().endswith("value"):
        raise MisconfigurationException("DeepSpeed does not support clipping gradients by value.")
    # The wrapper's `forward` calls the Trainer's current step; newer Lightning needs no wrapper.
    model = frameworks.current().pytorch("overrides.base")._LightningModuleWrapperBase(strategy.model)  # noqa: SLF001 - Lightning 2.0 only.
    loop = "train" if trainer.training else "inference"
    getattr(strategy, f"_initialize_deepspeed_{loop}")(model)
    return True


@contextmanager
def loading_optimizer(state: Any, *, full_weights: bool) -> Iterator[None]:
    """Return a context in which Fabric loads the state of DeepSpeed's optimizer.

    Lightning 2.0 loads it only if the state has an optimizer of torch's, and Lightning 2.1 to 2.3 import DeepSpeed's
    base class from where it was before 0.13.
    """
    runtime: Any = importlib.import_module("deepspeed.runtime")
    if not hasattr(runtime, "DeepSpeedOptimizer"):
        runtime.DeepSpeedOptimizer = importlib.import_module("deepspeed.runtime.base_optimizer").DeepSpeedOptimizer
    is_old = frameworks.current().version < _LIGHTNING_2_1 and not full_weights and state is not None
    if not is_old or not any(isinstance(value, runtime.DeepSpeedOptimizer) for value in state.values()):
        yield
        return
    state[__name__] = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    try:
        yield
    finally:
        del state[__name__]
