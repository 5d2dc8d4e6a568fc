"""Floating-point operations of operators, and the shape of their matrix products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._pytree import tree_map_only

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ATTENTION: Final = "scaled_dot_product"


def count_flops(
    formulas: Mapping[Any, Callable[..., int]], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> int:
    """Return the floating-point operations of a call by torch's formulas; 0 for an operator without one."""
    formula = formulas.get(func._overloadpacket)  # noqa: SLF001 - as torch's FlopCounterMode
    if formula is None:
        return _attention_flops(str(func), args)
    return int(formula(*args, **kwargs, out_val=result))


def _attention_flops(name: str, args: tuple[Any, ...]) -> int:
    # Fused attention for which torch has no formula: the CPU's, which the simulated device runs.
    if _ATTENTION not in name:
        return 0
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    is_backward = "backward" in name
    query, key, value = tensors[1:4] if is_backward else tensors[:3]
    batch, heads, length, size = query.shape
    products = 2 * batch * heads * length * key.shape[-2] * (size + value.shape[-1])
    # Backward computes the scores again, and gradients of both products: 5 products for 2.
    return int(products * 5 / 2) if is_backward else int(products)


def matmul_shape(name: str, args: tuple[Any, ...], result: Any) -> tuple[int, int, int, int] | None:
    """Return batch, M, N and K of a product, a convolution (as its implicit product) or attention; None if unknown."""
    shapes = tree_map_only(torch.Tensor, lambda tensor: tuple(tensor.shape), args)
    tensors = [each for each in shapes if isinstance(each, tuple) and all(isinstance(size, int) for size in each)]
    if name in {"addmm", "baddbmm"}:
        tensors = tensors[1:]
    if name in {"mm", "addmm"}:
        (rows, inner), (_, columns) = tensors[:2]
        return 1, rows, columns, inner
    if name in {"bmm", "baddbmm"}:
        (batch, rows, inner), (_, _, columns) = tensors[:2]
        return batch, rows, columns, inner
    if name.startswith("convolution"):
        weight = tensors[2] if name.endswith("backward") else tensors[1]
        image = tensors[0] if name.endswith("backward") else tuple(result.shape)
        return 1, image[0] * math.prod(image[2:]), weight[0], math.prod(weight[1:])
    if _ATTENTION in name:
        query, key = tensors[1:3] if "backward" in name else tensors[:2]
        return math.prod(query[:-2]), query[-2], key[-2], query[-1]
    return None
