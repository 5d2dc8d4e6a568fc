"""Floating-point operations of operators, and their matrix products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_sim.prediction.recording import Product

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.prediction.recording import Layout

#: Part of the names of fused attention.
ATTENTION: Final = "scaled_dot_product"


def count_flops(
    formula: Callable[..., int] | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> int:
    """Return the floating-point operations of a call by torch's formula; 0 for an operator without one."""
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=result))
    # Fused attention for which torch has no formula: the CPU's, which the simulated device runs.
    if ATTENTION not in name:
        return 0
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    is_backward = "backward" in name
    query, key, value = tensors[1:4] if is_backward else tensors[:3]
    batch, heads, length, size = query.shape
    products = 2 * batch * heads * length * key.shape[-2] * (size + value.shape[-1])
    # Backward computes the scores again, and gradients of both products: 5 products for 2.
    return int(products * 5 / 2) if is_backward else int(products)


def products_of(name: str, args: tuple[Any, ...], result: Any) -> tuple[Product, ...]:
    """Return the matrix products of a product, a convolution (its implicit ones) or attention; none if unknown."""
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if name in {"addmm", "baddbmm"}:
        tensors = tensors[1:]
    if name in {"mm", "addmm", "bmm", "baddbmm"}:
        first, second = tensors[:2]
        batch = first.shape[0] if first.dim() > 2 else 1  # noqa: PLR2004 - a batch of matrices
        return (Product(batch, first.shape[-2], second.shape[-1], first.shape[-1], _layout(first, second)),)
    if name.startswith("convolution"):
        return _convolutions(name, args, result)
    if ATTENTION in name:
        query, key, value = tensors[1:4] if "backward" in name else tensors[:3]
        batch, length, size = math.prod(query.shape[:-2]), query.shape[-2], query.shape[-1]
        others, out = key.shape[-2], value.shape[-1]
        scores = Product(batch, length, others, size, "abt")
        if "backward" not in name:
            return scores, Product(batch, length, out, others)
        return (
            scores,
            Product(batch, others, out, length, "atb"),
            Product(batch, length, others, out, "abt"),
            Product(batch, length, size, others),
            Product(batch, others, size, length, "atb"),
        )
    return ()


def _layout(first: torch.Tensor, second: torch.Tensor) -> Layout:
    layouts: dict[tuple[bool, bool], Layout] = {
        (False, False): "ab", (False, True): "abt", (True, False): "atb", (True, True): "atbt",
    }  # fmt: skip
    return layouts[_is_transposed(first), _is_transposed(second)]


def _is_transposed(matrix: torch.Tensor) -> bool:
    return matrix.stride(-1) != 1 and matrix.stride(-2) == 1 and matrix.shape[-1] > 1


def _convolutions(name: str, args: tuple[Any, ...], result: Any) -> tuple[Product, ...]:
    """Return the products of a convolution: rows are positions of a batch, K is taps x channels of a group."""
    is_backward = name.endswith("backward")
    gradient, image, weight = args[:3] if is_backward else (result, args[0], args[1])
    groups, is_transposed = (args[9], args[7]) if is_backward else (args[8], args[6])
    small, large = (image, gradient) if is_transposed else (gradient, image)
    positions = small.shape[0] * math.prod(small.shape[2:])
    # The first dimension of a weight has the channels of the smaller image, transposed or not.
    wide, narrow = weight.shape[0] // groups, weight.shape[1]
    taps = math.prod(weight.shape[2:])
    gather = Product(groups, positions, wide, taps * narrow)
    # Every position of the larger image gets those taps that reach it: as many products in all.
    spread = large.shape[0] * math.prod(large.shape[2:])
    scatter = Product(groups, spread, narrow, max(round(taps * wide * positions / spread), 1))
    if not is_backward:
        return (scatter,) if is_transposed else (gather,)
    of_image, of_weight, _ = args[10]
    of_weights = Product(groups, taps * narrow, wide, positions, "atb", is_weight_gradient=True)
    images = (gather if is_transposed else scatter,) if of_image else ()
    return (*images, *((of_weights,) if of_weight else ()))
