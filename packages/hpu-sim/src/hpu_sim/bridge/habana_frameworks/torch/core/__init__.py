"""``htcore``: ``mark_step`` for lazy mode, and inference mode."""

from habana_frameworks.torch import hpu
from habana_frameworks.torch.core.quantization import (
    hpu_inference_initialize,
    hpu_initialize,
    hpu_reset_env,
    hpu_set_env,
)
from habana_frameworks.torch.core.step_closure import mark_step
from habana_frameworks.torch.utils import experimental as htexp
from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.device.features import features

__all__ = [
    "hpu",
    "hpu_inference_initialize",
    "hpu_initialize",
    "hpu_reset_env",
    "hpu_set_env",
    "htexp",
    "is_lazy",
    "mark_step",
]

if features().after_1_19:
    from habana_frameworks.torch.core.quantization import hpu_inference_reset_env, hpu_inference_set_env

    __all__ += ["hpu_inference_reset_env", "hpu_inference_set_env"]
