"""Operators of torch: what a call reads, writes and computes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from hpu_sim.prediction.recording import Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Part of the names of fused attention.
ATTENTION: Final = "scaled_dot_product"
# Operators that run nothing on the device, or that are reads of the host.
_WITHOUT_WORK: Final = frozenset(
    {"detach", "alias", "lift_fresh", "_unsafe_view", "empty", "empty_strided", "empty_like", "new_empty", "equal"}
)
# Operators that do not read their first tensor: they overwrite it, or take its shape.
_OVERWRITING: Final = frozenset({
    "bernoulli_", "copy_", "exponential_", "fill_", "full_like", "new_full", "new_ones", "new_zeros", "normal_",
    "ones_like", "rand_like", "randn_like", "random_", "uniform_", "zero_", "zeros_like",
})  # fmt: skip
# Operators that read only the selected rows of their first tensor.
_GATHERS: Final = frozenset({"embedding", "index_select", "gather", "index", "_index", "take"})


class Function(NamedTuple):
    """Operator, and what of it does not depend on a call."""

    overload: Any
    text: str
    name: str
    arguments: Sequence[Any]
    formula: Callable[..., int] | None

    @classmethod
    def of(cls, overload: Any) -> Function:
        """Return an operator of torch."""
        packet, schema = overload.overloadpacket, overload._schema  # noqa: SLF001 - the only list of its arguments
        return cls(overload, str(overload), packet.__name__, schema.arguments, flop_registry.get(packet))

    def named(self, values: tuple[Any, ...]) -> dict[str, Any]:
        """Return values by the names of the arguments."""
        return dict(zip((each.name for each in self.arguments), values, strict=True))

    def call(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return values as positional and keyword arguments."""
        count = sum(not each.kwarg_only for each in self.arguments)
        names = (each.name for each in self.arguments[count:])
        return values[:count], dict(zip(names, values[count:], strict=True))


def tensors_of(values: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors among arguments or results, and in lists of them."""
    found: list[torch.Tensor] = []
    for each in values:
        if isinstance(each, torch.Tensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            found += tensors_of(each)
    return found


def describe(
    function: Function,
    call: tuple[tuple[Any, ...], Mapping[str, Any]],
    tensors: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
    numbers: Sequence[int],
    results: Sequence[Any],
) -> Operation | None:
    """Return what an operator reads, writes and computes; None if it only makes a view.

    Args:
        function: Operator.
        call: Positional and keyword arguments.
        tensors: Tensors among the arguments, and among the results.
        numbers: Numbers of the storages of all of them.
        results: Results.
    """
    (inputs, outputs), name = tensors, function.name
    if function.overload.is_view or name in _WITHOUT_WORK:
        return None
    reads = tuple((number, _bytes_read(each)) for number, each in zip(numbers, inputs, strict=False))
    writes = tuple((number, each.nbytes) for number, each in zip(numbers[len(inputs) :], outputs, strict=True))
    if name in _GATHERS and reads and writes:
        reads = ((reads[0][0], writes[0][1]), *reads[1:])
    result = results[0] if len(results) == 1 else tuple(results)
    first = next((each for each in (*inputs, *outputs) if each.is_floating_point()), (*inputs, *outputs)[0])
    return Operation(
        name=f"{function.overload.namespace}.{name}",
        phase="forward",
        module="",
        dtype=str(first.dtype).removeprefix("torch."),
        flops=_count_flops(function.formula, name, call, result),
        reads=reads[1:] if name in _OVERWRITING else reads,
        writes=writes,
        key=hash((function.text, tuple((each.shape, each.dtype) for each in inputs))),
    )


def _bytes_read(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's different elements: an expanded dimension is read once."""
    if not tensor.numel() or 0 not in tensor.stride():
        return tensor.nbytes
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(length for length, stride in pairs if stride)


def _count_flops(
    formula: Callable[..., int] | None, name: str, call: tuple[tuple[Any, ...], Mapping[str, Any]], result: Any
) -> int:
    """Return the floating-point operations of a call by torch's formula; 0 for an operator without one."""
    args, kwargs = call
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
