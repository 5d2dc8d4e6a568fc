"""Operators that hpu_backend leaves to eager mode, by the rules of bridge 1.19's ``shared_layer.py`` and ``passes.py``.

A graph is split at them. Each part between is compiled as a graph of its own.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._ops import OpOverload

from hpu_sim.data import op_support

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALWAYS: Final = frozenset(
    {
        "nonzero",
        "_unique2",
        "bincount",
        "index",
        "addcmul",
        "slice_backward",
        "run_and_save_rng_state",
        "run_with_rng_state",
    }
)
_BOOL_LITERALS: Final = frozenset({"full", "mul"})
_ATTENTION: Final = ("sdpa", "scaled_dot_product")
# The namespaces of which the bridge knows operators.
_NAMESPACES: Final = frozenset({"aten", "hpu", "prims"})


def is_eager(node: torch.fx.Node) -> bool:
    """Return whether a node of a graph runs in eager mode rather than in a compiled graph."""
    if node.target is operator.getitem:
        # Follows the operator whose result it takes a part of.
        source = node.args[0]
        return isinstance(source, torch.fx.Node) and is_eager(source)
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return True
    namespace, _, name = node.target._schema.name.partition("::")  # noqa: SLF001 - the only name without the overload
    return (
        namespace not in _NAMESPACES
        or name in _ALWAYS
        or (namespace == "aten" and not _is_known(name, node.target))
        or (name in _BOOL_LITERALS and any(isinstance(value, bool) for value in _values(node.args)))
        or any(isinstance(value, float) and math.isnan(value) for value in _values(node.args))
        or (name == "permute" and _dtype(node.args[0]) == torch.int64)
        or (name == "_to_copy" and not _is_within_device(node))
        or (name in {"index_put", "index_put_"} and _has_special_index(node.args[1]))
        or (any(part in name for part in _ATTENTION) and _has_symbols(node))
    )


@functools.cache
def _device_operators() -> frozenset[str]:
    return op_support.device_operators(lazy=False)


def _is_known(name: str, target: OpOverload) -> bool:
    # An operator that torch composes of others is none of the table.
    cpu = torch._C.DispatchKey.CPU  # noqa: SLF001 - no public name
    return name.rstrip("_") in _device_operators() or not target.has_kernel_for_dispatch_key(cpu)


def _values(arguments: Any) -> Iterator[Any]:
    for value in arguments:
        if isinstance(value, list | tuple):
            yield from _values(value)
        else:
            yield value


def _example(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, torch.fx.Node) else None


def _dtype(node: Any) -> torch.dtype | None:
    return getattr(_example(node), "dtype", None)


def _is_within_device(node: torch.fx.Node) -> bool:
    examples = [_example(each) for each in (node, node.args[0])]
    return all(isinstance(each, torch.Tensor) and each.device.type == "hpu" for each in examples)


def _has_special_index(indices: Any) -> bool:
    examples = [_example(index) for index in indices]
    return any(
        not isinstance(example, torch.Tensor) or example.device.type == "cpu" or _is_symbolic(example)
        for example in examples
    )


def _has_symbols(node: torch.fx.Node) -> bool:
    return any(
        isinstance(example, torch.Tensor) and _is_symbolic(example) for example in map(_example, _values(node.args))
    )


def _is_symbolic(example: torch.Tensor) -> bool:
    return any(isinstance(size, torch.SymInt) for size in example.shape)
