"""Dimensions in which the input shapes of an operator differ from those of its earlier graphs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpu_sim.report.schema import Site

#: Maximum number of sizes that are kept per dimension.
MAX_SIZES: Final = 100

_TENSOR: Final = re.compile(r"(\w+)\[([^\]]*)\]")


def add_shapes(site: Site, before: str, after: str) -> None:
    """Add the dimensions in which the inputs of a site's operator differ."""
    for tensor, dimension, pair in changed_dimensions(site.op, before, after):
        sizes = site.dimensions.setdefault(f"{tensor} dimension {dimension}", [])
        sizes += [size for size in dict.fromkeys(pair) if size not in sizes] if len(sizes) < MAX_SIZES else []


def changed_dimensions(op: str, before: str, after: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Yield the tensor, the dimension and the two sizes of each difference between the inputs of two calls.

    Inputs with another number of dimensions have none in common, and are omitted.

    >>> list(changed_dimensions("aten::mm", "float32[4, 3], float32[3, 8]", "float32[5, 3], float32[3, 8]"))
    [('self', 0, (4, 5))]
    """
    old, new = _shapes(before), _shapes(after)
    if len(old) == len(new):
        for index, (old_shape, new_shape) in enumerate(zip(old, new, strict=True)):
            if len(old_shape) == len(new_shape):
                for dimension, sizes in enumerate(zip(old_shape, new_shape, strict=True)):
                    if sizes[0] != sizes[1]:
                        yield _input_name(op, index, len(old)), dimension, sizes


def _shapes(tensors: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, re.findall(r"\d+", shape))) for _, shape in _TENSOR.findall(tensors)]


def _input_name(op: str, index: int, count: int) -> str:
    """Return the name that an operator's schema gives to a tensor, or its position."""
    import torch

    try:
        schemas = torch._C._jit_get_schemas_for_operator(op)  # noqa: SLF001 - no public API
    except RuntimeError:
        schemas = []
    names = set()
    for schema in schemas:
        tensors = [each.name for each in schema.arguments if str(each.type) in {"Tensor", "Optional[Tensor]"}]
        if len(tensors) == count and not any("List[Tensor]" in str(each.type) for each in schema.arguments):
            names.add(tensors[index])
    return names.pop() if len(names) == 1 else f"input {index}"
