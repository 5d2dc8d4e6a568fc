"""Functions and modules whose forward and backward passes are replayed instead of run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from habana_frameworks.torch.hpu.graphs.capture import HPUGraph, graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _Pass(NamedTuple):
    """One direction: the graph, the tensors that it reads, and those that it leaves its results in."""

    graph: HPUGraph
    inputs: list[torch.Tensor]
    results: list[Any]  # None and values without gradients among them


class GraphedCall:
    """A call captured with its gradients, for arguments of one set of shapes.

    Args:
        function: What is called with the arguments.
        arguments: Arguments of the capture; their tensors are copied.
        parameters: Further tensors that want gradients, such as a module's.
        allow_unused_input: Whether an input or parameter may have no gradient.

    Raises:
        RuntimeError: If the function cannot be captured, or one of its inputs has no gradient.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Any,
        parameters: Sequence[torch.Tensor] = (),
        *,
        allow_unused_input: bool = False,
    ) -> None:
        leaves, self._structure = tree_flatten(arguments)
        statics = [_static(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._places = [i for i, leaf in enumerate(statics) if isinstance(leaf, torch.Tensor)]
        self.parameters = list(parameters)
        positional, named = tree_unflatten(statics, self._structure)

        captured = HPUGraph()
        with torch.enable_grad(), graph(captured):
            outputs, self._output_structure = tree_flatten(function(*positional, **named))
        self.forward = _Pass(captured, [statics[i] for i in self._places], list(outputs))
        self.backward = self._capture_backward(allow_unused_input)

    def _capture_backward(self, allow_unused_input: bool) -> _Pass | None:
        outputs = [value for value in self.forward.results if _wants_gradient(value)]
        surface = [*self.forward.inputs, *self.parameters]
        wanted = [tensor for tensor in surface if tensor.requires_grad]
        if not outputs or not wanted:
            return None
        incoming = [torch.zeros_like(value) for value in outputs]
        captured = HPUGraph()
        with graph(captured):
            gradients = iter(torch.autograd.grad(outputs, wanted, incoming, allow_unused=allow_unused_input))
        results = [next(gradients) if tensor.requires_grad else None for tensor in surface]
        return _Pass(captured, incoming, results)

    def __call__(self, arguments: Any) -> Any:
        """Replay with other arguments of the same structure and shapes, and return the outputs."""
        leaves, _ = tree_flatten(arguments)
        tensors = [leaves[i] for i in self._places]
        outputs = _Replay.apply(self, *tensors, *self.parameters)  # type: ignore[no-untyped-call] # inherited from torch
        return tree_unflatten(list(outputs), self._output_structure)


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _static(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


class _Replay(torch.autograd.Function):
    """Replays one direction, and the other when gradients arrive."""

    @staticmethod
    def forward(ctx: Any, call: GraphedCall, *surface: torch.Tensor) -> tuple[Any, ...]:
        for target, source in zip(call.forward.inputs, surface, strict=False):
            target.data.copy_(source)
        call.forward.graph.replay()
        ctx.call = call
        return tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in call.forward.results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        call: GraphedCall = ctx.call
        if call.backward is None:
            return (None,) * (1 + len(call.forward.inputs) + len(call.parameters))
        arriving = [
            gradient for gradient, value in zip(gradients, call.forward.results, strict=True) if _wants_gradient(value)
        ]
        for target, source in zip(call.backward.inputs, arriving, strict=True):
            if source is None:
                target.zero_()
            else:
                target.copy_(source)
        call.backward.graph.replay()
        return None, *(None if result is None else result.detach() for result in call.backward.results)


def make_graphed_callables(  # noqa: PLR0913, PLR0917 - the bridge's signature
    callables: Any,
    sample_args: Any,
    warmups: int = 0,
    allow_unused_input: bool = False,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
) -> Any:
    """Return functions or modules that replay captured forward and backward passes.

    Args:
        callables: A function or module, or a tuple of them. Modules are changed in place.
        sample_args: The tensors to capture with, one tuple per callable; a later call needs the same shapes.
        warmups: How often each is run, forward and backward, before the capture.
        allow_unused_input: Whether an input may have no gradient.
        asynchronous: Accepted; a simulated replay always ends before it returns.
        disable_tensor_cache: Accepted; the tensors of a capture are always kept.
        dry_run: Accepted; a capture always runs its operators.

    Returns:
        The same as ``callables``, graphed.

    Raises:
        TypeError: If an argument is no tensor.
        RuntimeError: In eager mode, or if something cannot be captured.
    """
    del asynchronous, disable_tensor_cache, dry_run
    several = isinstance(callables, tuple)
    functions = callables if several else (callables,)
    samples = sample_args if several else (sample_args,)
    graphed = tuple(
        _graphed(function, arguments, warmups, allow_unused_input)
        for function, arguments in zip(functions, samples, strict=True)
    )
    return graphed if several else graphed[0]


def _graphed(
    function: Any, arguments: tuple[torch.Tensor, ...], warmups: int, allow_unused_input: bool
) -> Callable[..., Any]:
    for argument in arguments:
        if not isinstance(argument, torch.Tensor):
            raise TypeError(f"`sample_args` must hold tensors only, got a {type(argument).__name__}")
    module = function if isinstance(function, torch.nn.Module) else None
    run = function if module is None else module.forward
    for _ in range(warmups):
        _run_both_ways(run, arguments)
    parameters = () if module is None else tuple(module.parameters())
    call = GraphedCall(run, (arguments, {}), parameters, allow_unused_input=allow_unused_input)

    @functools.wraps(run)
    def replay(*arguments: torch.Tensor) -> Any:
        return call((arguments, {}))

    if module is None:
        return replay
    training = module.training

    @functools.wraps(run)
    def forward(*arguments: Any, **options: Any) -> Any:
        # A graph knows one of the two modes; in the other one the module runs as it was.
        return replay(*arguments) if module.training == training else run(*arguments, **options)

    module.forward = forward
    return module


def _run_both_ways(run: Callable[..., Any], arguments: tuple[torch.Tensor, ...]) -> None:
    outputs = [value for value in tree_flatten(run(*arguments))[0] if isinstance(value, torch.Tensor)]
    wanted = [argument for argument in arguments if argument.requires_grad]
    differentiable = [value for value in outputs if value.requires_grad]
    if differentiable and wanted:
        torch.autograd.grad(differentiable, wanted, [torch.ones_like(v) for v in differentiable], allow_unused=True)
