"""Attention of torch as a card runs it, for a run that keeps the CPU's operator and thus its numbers.

The bridge has no kernel for torch's ``scaled_dot_product_attention``, which therefore takes torch's path of separate
operators (seen in 1.19, and assumed of every release). Its ``FusedSDPA`` is one kernel.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from hpu_sim.prediction.operators import Function, describe, tensors_of
from hpu_sim.prediction.torch_tools import is_safe_softmax, safe_softmax, storage_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hpu_sim.prediction.recording import Operation

#: Note of a program that calls torch's attention.
DECOMPOSED: Final = (
    '`scaled_dot_product_attention` of torch, and thus "sdpa" of transformers, is separate operators on a card, which '
    "write the scores to memory. `FusedSDPA` of the bridge is one kernel: `HPUKernels(attention=True)` of hpu-kernels."
)

_INPUTS: Final = ("query", "key", "value")
_MASK: Final = "attn_mask"


class Decomposition:
    """Separate operators of the calls of a step, whose backward passes read what their forward passes wrote."""

    def __init__(self) -> None:
        self._numbers = itertools.count(-1, -1)
        # By the number of the statistics of the softmax, which the backward pass reads.
        self._calls: dict[int, _Call] = {}

    def operations(self, function: Function, values: tuple[Any, ...], storages: Sequence[int]) -> list[Operation]:
        """Return the operators of one that the CPU ran; none for the backward pass of the bridge's kernel.

        Args:
            function: The CPU's operator.
            values: Its arguments.
            storages: Numbers of the storages of the tensors among them, then of its results.
        """
        arguments = function.named(values)
        given = [name for name, each in arguments.items() if isinstance(each, torch.Tensor)]
        numbers, results = dict(zip(given, storages, strict=False)), storages[len(given) :]
        is_backward = "backward" in function.name
        call = self._calls.pop(numbers["logsumexp"], None) if is_backward else _Call(arguments, numbers, self._numbers)
        if call is None:
            return []
        # What calls this runs within an operator, without autograd; another thread has it.
        with ThreadPoolExecutor(1) as thread:
            if is_backward:
                return thread.submit(call.backward, arguments["grad_out"], numbers["grad_out"], results).result()
            self._calls[results[1]] = call
            return thread.submit(call.forward, results[0]).result()


class _Call(TorchDispatchMode):
    """Call of attention, made again by its separate operators on tensors without data.

    Args:
        arguments: Arguments.
        numbers: Numbers of the storages of those that are tensors.
        others: Numbers of all others.
    """

    def __init__(self, arguments: Mapping[str, Any], numbers: Mapping[str, int], others: Iterator[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's constructor has no annotations.
        given = {name: arguments[name] for name in (*_INPUTS, _MASK) if arguments[name] is not None}
        self._arguments = arguments
        self._tensors = {name: _empty(each) for name, each in given.items()}
        self._inputs = [self._tensors[name].requires_grad_() for name in _INPUTS]
        known = {storage_key(each): numbers[name] for name, each in self._tensors.items()}
        self._numbers = defaultdict(others.__next__, known)
        # Tensors are kept, so that each storage has one key.
        self._called: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self._result = self._inputs[0]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if is_safe_softmax(func):
            with self:
                return safe_softmax(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self._called.append((func, args, kwargs or {}, result))
        return result

    def forward(self, number: int) -> list[Operation]:
        """Return the operators of the forward pass, whose result has a number.

        A program puts the heads beside each other then, which is a copy of what a card computes, and not of the CPU's.
        """
        query, key, value = self._inputs
        options = {name: self._arguments[name] for name in ("dropout_p", "is_causal", "scale")}
        options |= {"attn_mask": self._tensors.get(_MASK), "enable_gqa": query.shape[1] != key.shape[1]}
        with sdpa_kernel(SDPBackend.MATH), self:
            self._result = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)
            made = self._result if _joins_heads(self._result) else self._result.clone()
        return self._describe(0, {number: made})

    def backward(self, gradient: torch.Tensor, number: int, results: Sequence[int]) -> list[Operation]:
        """Return the operators of the backward pass, by the result's gradient and the numbers of those of the inputs.

        Gradients of heads that were beside each other are put so again.
        """
        first, given = len(self._called), _empty(gradient)
        self._numbers[storage_key(given)] = number
        with self:
            found = torch.autograd.grad(self._result, self._inputs, given)
            pairs = zip(self._inputs, found, strict=True)
            made = [new.clone() if _joins_heads(old) and not _joins_heads(new) else new for old, new in pairs]
        return self._describe(first, dict(zip(results, made, strict=False)))

    def _describe(self, first: int, made: Mapping[int, torch.Tensor]) -> list[Operation]:
        """Return the operators from one on, by the numbers of what they made."""
        self._numbers |= {storage_key(each): number for number, each in made.items()}
        found = []
        for overload, args, kwargs, value in self._called[first:]:
            values = value if isinstance(value, tuple) else (value,)
            tensors = tensors_of([*args, *kwargs.values()]), tensors_of(values)
            # An operator without a tensor as its result chooses the path.
            if tensors[1]:
                numbers = [self._numbers[storage_key(each)] for group in tensors for each in group]
                found.append(describe(Function.of(overload), (args, kwargs), tensors, numbers, values))
        return [each for each in found if each is not None]


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _joins_heads(tensor: torch.Tensor) -> bool:
    """Return whether the features of all heads of a token are one dimension without a copy."""
    return tensor.shape[1] == 1 or tensor.stride(1) == tensor.shape[-1] * tensor.stride(-1)
