"""HPU graphs of functions and modules with their backward passes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from habana_frameworks.torch.hpu.graphs.capture import HPUGraph, graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _Pass(NamedTuple):
    """Captured forward or backward pass: its graph, its static inputs and its static outputs."""

    graph: HPUGraph
    inputs: list[torch.Tensor]
    outputs: list[Any]  # some are None, or not tensors


class CapturedCall:
    """Captured call of a function and its backward pass, for one set of input shapes.

    Raises:
        RuntimeError: If the function cannot be captured, or an input has no gradient.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Any,
        parameters: Sequence[torch.Tensor] = (),
        *,
        allow_unused_input: bool = False,
        copy_gradients: bool = False,
    ) -> None:
        self.copy_gradients = copy_gradients
        leaves, self._structure = tree_flatten(arguments)
        static_leaves = [_static_input(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._tensor_indices = [i for i, leaf in enumerate(static_leaves) if isinstance(leaf, torch.Tensor)]
        self.parameters = list(parameters)
        args, kwargs = tree_unflatten(static_leaves, self._structure)

        captured = HPUGraph()
        with torch.enable_grad(), graph(captured):
            outputs, self._output_structure = tree_flatten(function(*args, **kwargs))
        self.forward = _Pass(captured, [static_leaves[i] for i in self._tensor_indices], list(outputs))
        self.backward = self._capture_backward(allow_unused_input)

    def _capture_backward(self, allow_unused_input: bool) -> _Pass | None:
        outputs = [value for value in self.forward.outputs if _requires_grad(value)]
        inputs = [*self.forward.inputs, *self.parameters]
        differentiable = [tensor for tensor in inputs if tensor.requires_grad]
        if not outputs or not differentiable:
            return None
        grad_outputs = [torch.zeros_like(value) for value in outputs]
        captured = HPUGraph()
        with graph(captured):
            grads = iter(torch.autograd.grad(outputs, differentiable, grad_outputs, allow_unused=allow_unused_input))
        grad_inputs = [next(grads) if tensor.requires_grad else None for tensor in inputs]
        return _Pass(captured, grad_outputs, grad_inputs)

    def __call__(self, arguments: Any) -> Any:
        """Replay with arguments of the same structure and shapes, and return the outputs."""
        leaves, _ = tree_flatten(arguments)
        tensors = [leaves[i] for i in self._tensor_indices]
        outputs = _Replay.apply(self, *tensors, *self.parameters)  # type: ignore[no-untyped-call] # torch has no annotations here
        return tree_unflatten(list(outputs), self._output_structure)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _static_input(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


class _Replay(torch.autograd.Function):
    """Autograd function that replays the captured passes."""

    @staticmethod
    def forward(ctx: Any, call: CapturedCall, *inputs: torch.Tensor) -> tuple[Any, ...]:
        for target, source in zip(call.forward.inputs, inputs, strict=False):
            target.data.copy_(source)
        call.forward.graph.replay()
        ctx.call = call
        return tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in call.forward.outputs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        call: CapturedCall = ctx.call
        if call.backward is None:
            return (None,) * (1 + len(call.forward.inputs) + len(call.parameters))
        pairs = zip(grad_outputs, call.forward.outputs, strict=True)
        grads = [grad for grad, output in pairs if _requires_grad(output)]
        for target, source in zip(call.backward.inputs, grads, strict=True):
            if source is None:
                target.zero_()
            else:
                target.copy_(source)
        call.backward.graph.replay()
        outputs = [None if grad is None else grad.detach() for grad in call.backward.outputs]
        return None, *(grad.clone() if call.copy_gradients and grad is not None else grad for grad in outputs)


def make_graphed_callables(  # noqa: PLR0913, PLR0917 - the bridge's signature
    callables: Any,
    sample_args: Any,
    warmups: int = 0,
    allow_unused_input: bool = False,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
) -> Any:
    """Return functions or modules that replay their captured forward and backward passes.

    Args:
        callables: A function or module, or a tuple of them, which is returned. Modules are changed in place.
        sample_args: Tensors of the capture, one tuple per callable. Calls must have the same shapes.
        warmups: Number of forward and backward passes before the capture.
        allow_unused_input: Whether inputs may have no gradient.
        asynchronous: No effect, as ``disable_tensor_cache`` and ``dry_run``; see ``wrap_in_hpu_graph``.
        disable_tensor_cache: No effect.
        dry_run: No effect.

    Raises:
        TypeError: If a sample argument is not a tensor.
        RuntimeError: In eager mode, or if something cannot be captured.
    """
    del asynchronous, disable_tensor_cache, dry_run
    is_tuple = isinstance(callables, tuple)
    functions = callables if is_tuple else (callables,)
    samples = sample_args if is_tuple else (sample_args,)
    results = tuple(
        _capture_callable(function, args, warmups, allow_unused_input)
        for function, args in zip(functions, samples, strict=True)
    )
    return results if is_tuple else results[0]


def _capture_callable(
    function: Any, sample_args: tuple[torch.Tensor, ...], warmups: int, allow_unused_input: bool
) -> Callable[..., Any]:
    for arg in sample_args:
        if not isinstance(arg, torch.Tensor):
            raise TypeError(f"`sample_args` must be tensors, got {type(arg).__name__}")
    module = function if isinstance(function, torch.nn.Module) else None
    run = function if module is None else module.forward
    for _ in range(warmups):
        _run_forward_backward(run, sample_args)
    parameters = () if module is None else tuple(module.parameters())
    call = CapturedCall(run, (sample_args, {}), parameters, allow_unused_input=allow_unused_input)

    @functools.wraps(run)
    def replay(*args: torch.Tensor) -> Any:
        return call((args, {}))

    if module is None:
        return replay
    training = module.training

    @functools.wraps(run)
    def forward(*args: Any, **kwargs: Any) -> Any:
        # The graph was captured in one of the two modes. In the other one the module runs without it.
        return replay(*args) if module.training == training else run(*args, **kwargs)

    module.forward = forward
    return module


def _run_forward_backward(run: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> None:
    outputs = [value for value in tree_flatten(run(*args))[0] if _requires_grad(value)]
    inputs = [arg for arg in args if arg.requires_grad]
    if outputs and inputs:
        torch.autograd.grad(outputs, inputs, [torch.ones_like(value) for value in outputs], allow_unused=True)
