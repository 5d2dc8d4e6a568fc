"""Ranges of sizes for recipes of dynamic graphs, by the rules of bridge 1.19's ``recipe_compiler.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# A range that exceeds it is not used.
_LARGEST_BOUND: Final = 10_000_000


class _Size(NamedTuple):
    """Symbolic size of a graph's inputs.

    Attributes:
        position: Position of the input.
        dimension: Dimension of the input; None for an input that is a number.
        bounds: Bounds by torch's guards and by ``torch._dynamo.mark_dynamic``; None for no useful ones.
    """

    position: int
    dimension: int | None
    bounds: tuple[int, int] | None

    def value_in(self, inputs: Sequence[Any]) -> int:
        value = inputs[self.position]
        return int(value if self.dimension is None else value.shape[self.dimension])


class Recipes:
    """Recipes of a graph, each for ranges of its symbolic sizes.

    Args:
        examples: Traced inputs of the graph.
        is_static: Whether each recipe is for one size only, as with the option ``force_static_compile``.
    """

    def __init__(self, examples: Iterable[Any], *, is_static: bool) -> None:
        self._sizes = list(_symbolic_sizes(examples))
        self._is_static = is_static
        self._ranges: list[list[tuple[int, int]]] = []

    def must_compile(self, inputs: Sequence[Any]) -> bool:
        """Return whether there is no recipe for inputs yet, and add one."""
        values = [size.value_in(inputs) for size in self._sizes]
        if any(self._fits(values, ranges) for ranges in self._ranges):
            return False
        self._ranges.append([self._range(*each) for each in zip(self._sizes, values, strict=True)])
        return True

    def _range(self, size: _Size, value: int) -> tuple[int, int]:
        if self._is_static:
            return value, value
        return size.bounds or (value, 2 * value)

    @staticmethod
    def _fits(values: list[int], ranges: list[tuple[int, int]]) -> bool:
        return all(low <= value <= high for value, (low, high) in zip(values, ranges, strict=True))


def _symbolic_sizes(examples: Iterable[Any]) -> Iterator[_Size]:
    for position, example in enumerate(examples):
        sizes: Iterable[tuple[int | None, Any]] = [(None, example)]
        if isinstance(example, torch.Tensor):
            sizes = enumerate(example.shape)
        for dimension, size in sizes:
            if isinstance(size, torch.SymInt):
                yield _Size(position, dimension, _bounds(size))


def _bounds(size: torch.SymInt) -> tuple[int, int] | None:
    node: Any = size.node
    if not hasattr(node.shape_env, "bound_sympy"):  # before torch 2.2
        return None
    bounds = node.shape_env.bound_sympy(node.expr)
    if bounds.lower < -_LARGEST_BOUND or bounds.upper > _LARGEST_BOUND:
        return None
    return int(bounds.lower), int(bounds.upper)
