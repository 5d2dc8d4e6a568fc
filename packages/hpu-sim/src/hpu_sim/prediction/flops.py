"""Floating-point operations of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

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
