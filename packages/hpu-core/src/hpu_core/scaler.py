"""Gradient scaling for float16: optimizers without gradients, at which torch's scalers raise an AssertionError."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

_Found = TypeVar("_Found", bound=dict[torch.device, Tensor])


def unscale_gradients(
    unscale: Callable[..., _Found],
    optimizer: Optimizer,
    inv_scale: Tensor,
    found_inf: Tensor,
    allow_fp16: bool,
) -> _Found | dict[torch.device, Tensor]:
    """Return what a scaler's `_unscale_grads_` returns, flags by device of whether gradients overflow.

    For an optimizer without gradients, that is `found_inf`, which is 0: its step does nothing then, as in other
    precisions, and the ranks of a sharded scaler reduce as many flags each. `unscale` is torch's method.
    """
    return unscale(optimizer, inv_scale, found_inf, allow_fp16) or {found_inf.device: found_inf}
