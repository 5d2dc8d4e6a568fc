"""Operators of ``torch.ops.hpu``, each computed by the plain torch formula.

They are those that published programs call by name; the others of the bridge serve `hpex` alone, whose functions
compute here what they compute there. Their schemas are those of bridge 1.19, the earliest whose source is public. As on
a card none of them has a gradient. A function gets its arguments by the names of the schema; those that only select
among kernels of a card end in ``**_``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch._operators import attention, float8, optimizers, rotary
from habana_frameworks.torch.utils.internal import is_lazy

if TYPE_CHECKING:
    from collections.abc import Callable

# Holds the registrations.
_library = torch.library.Library("hpu", "DEF")


def define_operators() -> None:
    """Define the operators in torch. The schema of AdamW depends on the mode."""
    operators = [*attention.OPERATORS, *rotary.OPERATORS]
    operators += optimizers.LAZY_OPERATORS if is_lazy() else optimizers.EAGER_OPERATORS
    # torch has float8 from 2.1 on.
    if hasattr(torch, "float8_e5m2"):
        operators += float8.OPERATORS
    for schema, function in operators:
        _library.define(schema)
        name, kernel = schema.partition("(")[0], _make_kernel(schema, function)
        _library.impl(name, kernel, "HPU")
        # For torch.compile, which traces with tensors without data.
        _library.impl(name, kernel, "Meta")


def _make_kernel(schema: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that torch calls, without gradients, with positional arguments up to the last given one."""
    names = [argument.name for argument in torch._C.parse_schema(schema).arguments]  # noqa: SLF001 - no public API

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return function(**dict(zip(names, args, strict=False)), **kwargs)

    return kernel
