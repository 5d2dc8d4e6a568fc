"""`scaled_dot_product_attention` by the bridge's FusedSDPA, where a call means the same."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from hpu_core import casts
from hpu_kernels import _torch, replacement

NAME: Final = "scaled_dot_product_attention"

# What the bridge's operators compute with (1.19: `hpu::sdpa_recomp_fwd` of habana_eager/eager_custom_op_register.cpp).
_DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
# Batch, heads, length and head size.
_DIMS: Final = 4


class Call(NamedTuple):
    """Arguments of torch's function, by its names."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def why_left(call: Call) -> str | None:
    """Return why a call is torch's, None if FusedSDPA computes the same."""
    reason = _why_tensors_are_left(*call[:3]) or _why_shapes_are_left(call)
    return reason or (None if call.attn_mask is None else _why_mask_is_left(call, call.attn_mask))


def _why_tensors_are_left(*tensors: torch.Tensor) -> str | None:
    if _torch.is_transformed():
        return "torch.func transforms the call"
    if any(type(each) not in {torch.Tensor, nn.Parameter} for each in tensors):
        return "a tensor is of another class, such as a DTensor"
    dtypes = {computed_dtype(each.dtype) for each in tensors}
    if len(dtypes) > 1 or not dtypes <= set(_DTYPES):
        return "the dtype is not float32, bfloat16 or float16, or not one"
    return None


def _why_shapes_are_left(call: Call) -> str | None:
    query, key, value = call[:3]
    if not query.dim() == key.dim() == value.dim() in {_DIMS - 1, _DIMS} or 0 in {*query.shape, *key.shape}:
        return "the tensors are empty, or not of (batch, heads, length, head size)"
    if query.shape[0] != key.shape[0] or key.shape[:-1] != value.shape[:-1]:
        return "tensors are broadcast"
    if _is_grouped(call) and (not call.enable_gqa or query.shape[1] % key.shape[1]):
        return "heads are broadcast without `enable_gqa`"
    if query.shape[-1] != value.shape[-1]:
        return "values have another head size than queries"
    if call.is_causal and (call.attn_mask is not None or query.shape[-2] != key.shape[-2]):
        return "causal, with a mask or with queries and keys of different lengths"
    return None


def _is_grouped(call: Call) -> bool:
    return call.query.dim() == _DIMS and call.query.shape[1] != call.key.shape[1]


def _why_mask_is_left(call: Call, mask: torch.Tensor) -> str | None:
    if mask.requires_grad and torch.is_grad_enabled():
        # `hpu::sdpa_recomp_bwd` returns the gradients of query, key and value only.
        return "the mask needs a gradient"
    sizes = (*call.query.shape[:-1], call.key.shape[-2])
    shape = (*(1,) * (len(sizes) - mask.dim()), *mask.shape)
    fits = len(shape) == len(sizes) and all(size in {1, whole} for size, whole in zip(shape, sizes, strict=True))
    if not fits or not (mask.dtype == torch.bool or mask.is_floating_point()) or type(mask) is not torch.Tensor:
        return "the mask is not of bools or floats in the shape of the scores"
    if _is_grouped(call) and shape[1] != 1:
        return "the mask differs by head, and several heads share a key"
    return None


def attend(call: Call) -> torch.Tensor:
    """Return the attention of a call that is not left, computed by FusedSDPA."""
    # hpu-doctor verify: fused-attention-agrees
    query, key, value = (each.to(computed_dtype(each.dtype)) for each in call[:3])
    is_without_heads = query.dim() < _DIMS
    if is_without_heads:
        query, key, value = (each.unsqueeze(0) for each in (query, key, value))
    mask, is_padding = (None, None) if call.attn_mask is None else _prepare_mask(call.attn_mask, query.dtype)
    output: torch.Tensor = _kernel()(query, key, value, mask, call.dropout_p, call.is_causal, call.scale)
    if is_padding is not None:
        output = output.masked_fill(is_padding, 0.0)
    return output.squeeze(0) if is_without_heads else output


def _prepare_mask(mask: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a mask without infinite values, (batch, heads, queries, keys), and where queries have no key.

    The kernel returns NaN for a query without a key, and torch 0. The result is kept at the mask, because all layers of
    a model share one.
    """
    if _torch.is_compiling() or mask.is_inference():
        return _convert_mask(mask, dtype)
    kept = getattr(mask, "_hpu_kernels_prepared", None)
    if kept is None or kept[0] != (mask._version, dtype):  # noqa: SLF001 - has no other name
        kept = ((mask._version, dtype), _convert_mask(mask, dtype))  # noqa: SLF001 - as above
        mask._hpu_kernels_prepared = kept  # type: ignore[attr-defined]  # noqa: SLF001 - ours
    result: tuple[torch.Tensor, torch.Tensor] = kept[1]
    return result


@torch.no_grad()
def _convert_mask(mask: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    while mask.dim() < _DIMS:
        mask = mask.unsqueeze(0)
    least = torch.finfo(dtype).min
    if mask.dtype == torch.bool:
        added = torch.zeros_like(mask, dtype=dtype).masked_fill(mask.logical_not(), least)
        return added, mask.any(-1, keepdim=True).logical_not()
    # The least value of float32 is infinite in bfloat16.
    added = mask.to(dtype)
    return added.clamp(min=least), (added == -torch.inf).all(-1, keepdim=True)


def _kernel() -> Callable[..., Any]:
    apply: Callable[..., Any] = replacement.bridge_module("hpex.kernels").FusedSDPA.apply
    return apply


_computed: dict[tuple[torch.dtype, torch.dtype | None], torch.dtype] = {}


@_torch.constant
def computed_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which torch would compute attention of tensors of a dtype now, by the casts in effect.

    It runs one tiny call for each dtype, because hpu-precision's op lists decide about it.
    """
    if not casts.are_enabled():
        return dtype
    key = dtype, _torch.autocast_dtype()
    if key not in _computed:
        with torch.no_grad():
            tiny = torch.zeros(1, 1, 1, 1, dtype=dtype, device="hpu")
            _computed[key] = torch.ops.aten.scaled_dot_product_attention(tiny, tiny, tiny).dtype
    return _computed[key]


def _replacement(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
        call = Call(*args, **kwargs)
        if replacement.is_on_card(*call[:3]) and replacement.take(NAME, "FusedSDPA", why_left(call)):
            return attend(call)
        output: torch.Tensor = plain(*args, **kwargs)
        return output

    return scaled_dot_product_attention


def apply(modules: Iterable[nn.Module], optimizers: Any) -> Iterator[replacement.Undo]:
    """Replace torch's function, also where the files of the modules' classes import it by name."""
    del optimizers
    modules = list(modules)
    # Its own code may call torch's function, so it is imported before that is replaced.
    _kernel()
    plain = functional.scaled_dot_product_attention
    files = {sys.modules.get(kind.__module__) for module in modules for kind in type(module).__mro__}
    named = [(file, name) for file in files if file is not None for name, value in vars(file).items() if value is plain]
    for owner, name in {(functional, NAME), *named}:
        yield replacement.replace(owner, name, _replacement)
    yield from _use_sdpa(modules)


def _use_sdpa(modules: Iterable[nn.Module]) -> Iterator[replacement.Undo]:
    """Switch models of transformers from "eager" to "sdpa" attention where that is the same."""
    for module in modules:
        switch: Any = getattr(module, "set_attn_implementation", None)
        config: Any = getattr(module, "config", None)
        if switch is None or getattr(config, "_attn_implementation", None) != "eager":
            continue
        differs = ("output_attentions", "attn_logit_softcapping", "reorder_and_upcast_attn")
        if getattr(module, "_supports_sdpa", False) and not any(getattr(config, name, None) for name in differs):
            switch("sdpa")
            yield functools.partial(switch, "eager")
