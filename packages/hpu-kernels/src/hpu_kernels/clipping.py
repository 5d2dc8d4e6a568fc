"""`torch.nn.utils.clip_grad_norm_` by the bridge's FusedClipNorm."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from torch import nn

from hpu_kernels import replacement

NAME: Final = "clip_grad_norm_"


def _why_left(gradients: list[torch.Tensor], max_norm: Any, norm_type: float) -> str | None:
    if any(type(each) is not torch.Tensor for each in gradients):
        return "gradients are sharded, whose norm is that of all ranks"
    if norm_type != 2:  # noqa: PLR2004 - the L2 norm
        return "another norm"
    if len({(each.dtype, each.device.type) for each in gradients}) != 1:
        return "gradients of several dtypes or devices, or none"
    return None if isinstance(max_norm, int | float) and math.isfinite(max_norm) else "the maximum is no finite number"


def _replacement(plain: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(plain)
    def clip_grad_norm_(
        parameters: torch.Tensor | Iterable[torch.Tensor],
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> torch.Tensor:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        gradients = [each.grad for each in parameters if each.grad is not None]
        if replacement.is_on_card(*gradients):
            reason = _why_left(gradients, max_norm, norm_type)
            if replacement.take(NAME, "FusedClipNorm", reason):
                kernel: Any = replacement.bridge_module("hpex.normalization").FusedClipNorm(parameters, max_norm)
                norm: torch.Tensor = kernel.clip_norm(parameters).reshape(())
                # Else torch's function finds the same, and raises its error.
                if not error_if_nonfinite or norm.isfinite():
                    return norm
        return plain(parameters, max_norm, norm_type, error_if_nonfinite, foreach)

    return clip_grad_norm_


def apply(modules: Any, optimizers: Any) -> Iterator[replacement.Undo]:
    """Replace torch's function, as Lightning and others call it."""
    del modules, optimizers
    yield replacement.replace(nn.utils, NAME, _replacement)
