"""Attention of torch as a card runs it, for a run that keeps the CPU's operator and thus its numbers.

The bridge has no kernel for torch's ``scaled_dot_product_attention``, which therefore takes torch's path of separate
operators (seen in 1.19, and assumed of every release). Its ``FusedSDPA`` is one kernel.
"""

from __future__ import annotations

import functools
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from hpu_sim.prediction.operators import Function, describe, tensors_of
from hpu_sim.prediction.torch_tools import separate_operators, storage_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpu_sim.prediction.recording import Access, Operation

#: Note of a program that calls torch's attention.
DECOMPOSED: Final = (
    '`scaled_dot_product_attention` of torch, and thus "sdpa" of transformers, is separate operators on a card, which '
    "write the scores to memory. `FusedSDPA` of the bridge is one kernel: `HPUKernels(attention=True)` of hpu-kernels."
)

#: Shape, strides and dtype.
_Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


class Decomposition:
    """Separate operators of the calls of a step, whose backward passes read what their forward passes wrote."""

    def __init__(self) -> None:
        self._numbers = itertools.count(-1, -1)
        # Backward operators, and the numbers of storages so far, by that of the statistics of the softmax.
        self._calls: dict[int, tuple[Sequence[Operation], dict[int, int]]] = {}

    def operations(
        self, name: str, arguments: Mapping[str, Any], numbers: Mapping[str, int], results: Sequence[int]
    ) -> list[Operation]:
        """Return the operators of one that the CPU ran; none for the backward pass of the bridge's kernel.

        Args:
            name: Name of the CPU's operator.
            arguments: Its arguments.
            numbers: Numbers of the storages of its tensors.
            results: Numbers of the storages of its results.
        """
        if "backward" in name:
            found, known = self._calls.pop(numbers["logsumexp"], ((), {}))
            known |= {_GRADIENT: numbers["grad_out"], **dict(zip(_GRADIENTS, results, strict=False))}
            return self._numbered(found, known)
        tensors = [arguments[each] for each in _TENSORS]
        layouts = tuple(None if each is None else (tuple(each.shape), each.stride(), each.dtype) for each in tensors)
        forward, backward = _separate(layouts, arguments["dropout_p"], arguments["is_causal"], arguments["scale"])
        known = {slot: numbers[each] for slot, each in enumerate(_TENSORS) if each in numbers} | {_RESULT: results[0]}
        done = self._numbered(forward, known)
        self._calls[results[1]] = backward, known
        return done

    def _numbered(self, operations: Sequence[Operation], known: dict[int, int]) -> list[Operation]:
        """Return operators with the numbers of storages in place of their slots."""

        def number(accesses: Sequence[Access]) -> tuple[Access, ...]:
            for slot, _ in accesses:
                known.setdefault(slot, next(self._numbers))
            return tuple((known[slot], size) for slot, size in accesses)

        return [replace(each, reads=number(each.reads), writes=number(each.writes)) for each in operations]


_TENSORS: Final = ("query", "key", "value", "attn_mask")
# Slots of the tensors that a program sees, after those of the arguments.
_RESULT, _GRADIENT, *_GRADIENTS, _OTHERS = range(len(_TENSORS), len(_TENSORS) + 6)


@functools.lru_cache(maxsize=64)
def _separate(
    layouts: tuple[_Layout | None, ...], dropout: float, is_causal: bool, scale: float | None
) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """Return the operators of the forward and of the backward pass, with slots in place of the storages' numbers."""
    # What calls this runs within an operator, without autograd; another thread has it.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_trace, layouts, dropout, is_causal, scale).result()


def _trace(
    layouts: Sequence[_Layout | None], dropout: float, is_causal: bool, scale: float | None
) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    tensors = [None if each is None else _empty(*each) for each in layouts]
    inputs, mask = [each.requires_grad_() for each in tensors[:-1] if each is not None], tensors[-1]
    with sdpa_kernel(SDPBackend.MATH), _Calls() as calls:
        query, key, value = inputs
        is_grouped = query.shape[1] != key.shape[1]
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, dropout, is_causal, scale=scale, enable_gqa=is_grouped
        )
        first = len(calls.done)
        gradient = torch.empty_like(result)
        gradients = torch.autograd.grad(result, inputs, gradient)
    named = {_RESULT: result, _GRADIENT: gradient, **dict(zip(_GRADIENTS, gradients, strict=True))}
    of_arguments = {slot: each for slot, each in enumerate(tensors) if each is not None}
    slots = {storage_key(each): slot for slot, each in {**of_arguments, **named}.items()}
    forward, backward = (
        tuple(filter(None, (_describe(each, slots) for each in part)))
        for part in (calls.done[:first], calls.done[first:])
    )
    return forward, backward


def _empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


class _Calls(TorchDispatchMode):
    """Calls of operators; it keeps their tensors, so that each storage has one key."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's
        self.done: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        separate = separate_operators().get(func)
        if separate is not None:
            with self:
                return separate(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, result))
        return result


def _describe(call: tuple[Any, tuple[Any, ...], dict[str, Any], Any], slots: dict[int, int]) -> Operation | None:
    overload, args, kwargs, result = call
    results = result if isinstance(result, tuple) else (result,)
    tensors = tensors_of([*args, *kwargs.values()]), tensors_of(results)
    numbers = [slots.setdefault(storage_key(each), _OTHERS + len(slots)) for group in tensors for each in group]
    # An operator without a tensor as its result chooses the path.
    return describe(Function.of(overload), (args, kwargs), tensors, numbers, results) if tensors[1] else None
