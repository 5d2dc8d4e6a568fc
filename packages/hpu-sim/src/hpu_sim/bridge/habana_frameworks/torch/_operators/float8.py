"""Casts and matrix products of float8 tensors.

A scale is a tensor, a number or a list of numbers; the schemas have one overload for each. Casts saturate. Numbers are
rounded to nearest even where a card would round stochastically. Products are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Union

import torch

from hpu_sim.device.runtime import active_config

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Scale of an operand, as the overloads take it.
Scale = Union[torch.Tensor, float, "Sequence[float]", None]

#: Largest float8_e4m3fn number. Gaudi 2 reserves the top exponent as IEEE 754 does, so its numbers end at 240.
E4M3_MAX: Final = {"GAUDI2": 240.0, "GAUDI3": 448.0}


def is_float8(dtype: torch.dtype) -> bool:
    """Return whether a dtype is one of the device's float8 dtypes."""
    # torch before 2.1 has none.
    return str(dtype) in {"torch.float8_e4m3fn", "torch.float8_e5m2"}


def saturate(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in another dtype; for float8, numbers beyond its range become its largest."""
    if not is_float8(dtype):
        return tensor.to(dtype)
    limit = torch.finfo(dtype).max
    if dtype == torch.float8_e4m3fn:
        limit = E4M3_MAX.get(active_config().generation, limit)
    return tensor.clamp(-limit, limit).to(dtype)


def scaled(tensor: torch.Tensor, scale: Scale, shape: Sequence[int] | None = None) -> torch.Tensor:
    """Return a tensor multiplied by a scale."""
    if scale is None:
        return tensor
    if not isinstance(scale, torch.Tensor):
        scale = torch.tensor(scale, dtype=torch.float32, device=tensor.device)
    factor = scale.to(tensor.dtype)
    return tensor * (factor if shape is None else factor.reshape(list(shape)))


def amax_of(tensor: torch.Tensor, *, requested: bool) -> torch.Tensor:
    """Return the maximum of the absolute values if it is requested, else an empty tensor."""
    return tensor.abs().max().float() if requested else torch.empty(0, device=tensor.device)


def _cast_to_fp8_v2(
    *,
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    scale: Scale = None,
    is_amax: bool = False,
    dtype: torch.dtype | None = None,
    scale_shape: Sequence[int] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    target = torch.float8_e5m2 if dtype is None else dtype
    return saturate(scaled(input, scale, scale_shape), target), amax_of(input, requested=is_amax)


def _cast_from_fp8(
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    scale: Scale,
    out_dtype: torch.dtype,
    scale_shape: Sequence[int] | None = None,
) -> torch.Tensor:
    return scaled(input.to(out_dtype), scale, scale_shape)


def _fp8_gemm_v2(  # noqa: PLR0913, PLR0917 - the bridge's signature
    A: torch.Tensor,  # noqa: N803 - the bridge's name
    trans_A: bool,  # noqa: N803 - as above
    B: torch.Tensor,  # noqa: N803 - as above
    trans_B: bool,  # noqa: N803 - as above
    D: torch.Tensor | None,  # noqa: N803 - as above
    out_dtype: torch.dtype,
    A_scale_inv: Scale = None,  # noqa: N803 - as above
    B_scale_inv: Scale = None,  # noqa: N803 - as above
    bias: torch.Tensor | None = None,
    accumulate: bool = False,
    B_scale_shape: Sequence[int] | None = None,  # noqa: N803 - as above
) -> torch.Tensor:
    left = A.float().mT if trans_A else A.float()
    right = B.float().mT if trans_B else B.float()
    product = scaled(scaled(left @ right, A_scale_inv), B_scale_inv, B_scale_shape)
    if bias is not None:
        product = product + bias.float()
    if accumulate and D is not None:
        product = product + D.float()
    return saturate(product, out_dtype)


_CAST: Final = "bool stochastic_rounding=False, bool is_amax=False, ScalarType? dtype=None, int[]? scale_shape=None"
_GEMM: Final = "Tensor A, bool trans_A, Tensor B, bool trans_B, Tensor? D, ScalarType out_dtype"
_GEMM_REST: Final = "Tensor? bias=None, bool accumulate=False, int[]? B_scale_shape=None"
_CAST_FROM: Final = "ScalarType out_dtype, int[]? scale_shape=None"
# Types of a scale by overload.
_SCALAR_SCALES: Final = ((".scalar", "float"), (".scalar_list", "float[]"))

#: Schemas and functions.
OPERATORS: Final = (
    (f"cast_to_fp8_v2(Tensor input, Tensor? scale=None, {_CAST}) -> (Tensor, Tensor)", _cast_to_fp8_v2),
    (f"cast_from_fp8(Tensor input, Tensor? scale, {_CAST_FROM}) -> Tensor", _cast_from_fp8),
    (
        f"fp8_gemm_v2({_GEMM}, Tensor? A_scale_inv=None, Tensor? B_scale_inv=None, {_GEMM_REST}) -> Tensor",
        _fp8_gemm_v2,
    ),
    *(
        operator
        for overload, kind in _SCALAR_SCALES
        for operator in (
            (f"cast_to_fp8_v2{overload}(Tensor input, {kind} scale, {_CAST}) -> (Tensor, Tensor)", _cast_to_fp8_v2),
            (f"cast_from_fp8{overload}(Tensor input, {kind} scale, {_CAST_FROM}) -> Tensor", _cast_from_fp8),
            (
                f"fp8_gemm_v2{overload}({_GEMM}, {kind} A_scale_inv, {kind} B_scale_inv, {_GEMM_REST}) -> Tensor",
                _fp8_gemm_v2,
            ),
        )
    ),
)
