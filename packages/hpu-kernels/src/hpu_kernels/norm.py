"""Modules that compute an RMS norm by the bridge's FusedRMSNorm."""

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from torch import nn

from hpu_kernels import replacement

KERNEL: Final = "FusedRMSNorm"
# Features of the input with which a module is tried, where it takes any.
_FEATURES: Final = 8
# Attribute of the modules of which the kernel computes the same: their eps, in a tuple.
_MARK: Final = "_hpu_kernels_eps"


def _normalize(inputs: torch.Tensor, weight: torch.Tensor, eps: float | None) -> torch.Tensor:
    kernel: Any = replacement.bridge_module("hpex.normalization").FusedRMSNorm
    eps = torch.finfo(inputs.dtype).eps if eps is None else eps
    result: torch.Tensor = kernel.apply(inputs, weight.to(inputs.dtype), eps)
    return result


def _replacement(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def forward(self: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        mark: Any = getattr(self, _MARK, None)
        fits = mark is not None and not args and not kwargs and _fits(inputs, self.weight)
        if fits and replacement.take(type(self).__name__, KERNEL, None):
            return _normalize(inputs, self.weight, *mark)  # type: ignore[arg-type] # mypy sees a module or a tensor; `_fits` has checked that it is a tensor.
        return plain(self, inputs, *args, **kwargs)

    return forward


def _fits(inputs: Any, weight: Any) -> bool:
    is_plain = type(inputs) is torch.Tensor and type(weight) in {torch.Tensor, nn.Parameter}
    # Else the result has the dtype of the weight. With FSDP in bf16-mixed, gathered weights are in bfloat16.
    keeps_dtype = is_plain and torch.promote_types(inputs.dtype, weight.dtype) == inputs.dtype
    return keeps_dtype and replacement.is_on_card(inputs, weight)


def apply(modules: Iterable[nn.Module], optimizers: Any) -> Iterator[replacement.Undo]:
    """Replace the forward pass of the modules of which the kernel computes the same."""
    del optimizers
    found: dict[Any, bool] = {}
    for module in modules:
        options = {name: each for name, each in vars(module).items() if isinstance(each, int | float | str | None)}
        eps = [each for name, each in options.items() if "eps" in name and isinstance(each, float | None)]
        is_changed = hasattr(module, _MARK) or "forward" in vars(module) or getattr(module, "bias", None) is not None
        has_weight = isinstance(getattr(module, "weight", None), torch.Tensor)
        if not eps or is_changed or not has_weight or next(module.children(), None) is not None:
            continue
        kind = type(module)
        key = kind, tuple(options.items()), getattr(module, "normalized_shape", None)
        if key not in found:
            found[key] = _is_same(module, eps[0])
        if found[key]:
            setattr(module, _MARK, (eps[0],))
            yield functools.partial(delattr, module, _MARK)
            yield replacement.replace(kind, "forward", _replacement)
        elif "rms" in kind.__name__.lower():
            replacement.note(kind.__name__, KERNEL, "it computes something else")


def _is_same(module: nn.Module, eps: Any) -> bool:
    """Return whether a module computes what the kernel does, for one small input and weights of its own."""
    # hpu-doctor verify: fused-functions-agree
    shape: Any = getattr(module, "normalized_shape", (_FEATURES,))
    if len(shape) != 1:
        return False
    stand_in = copy.copy(module)
    # Not the module's own: it may be sharded, and weights of one would hide what is done with them.
    weight = nn.Parameter(torch.linspace(0.5, 1.5, shape[0]))
    vars(stand_in).pop("weight", None)
    vars(stand_in)["_parameters"] = {"weight": weight}
    inputs = torch.linspace(-1.0, 3.0, 2 * shape[0]).view(2, -1)
    eps = torch.finfo(inputs.dtype).eps if eps is None else eps
    expected = weight * inputs * torch.rsqrt(inputs.square().mean(-1, keepdim=True) + eps)
    return replacement.is_same(lambda: type(module).forward(stand_in, inputs), expected)
