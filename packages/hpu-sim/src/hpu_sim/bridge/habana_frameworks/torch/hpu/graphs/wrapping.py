"""HPU graphs of forward passes, one per set of input shapes, for inference."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from habana_frameworks.torch.hpu.graphs.capture import HPUGraph, graph
from habana_frameworks.torch.hpu.graphs.inputs import copy_to, input_hash

if TYPE_CHECKING:
    from collections.abc import Callable


class CachedParams:
    """Captured call: its input tensors, its outputs and its graph."""

    def __init__(self, graph_inputs: Any, graph_outputs: Any, graph: HPUGraph) -> None:
        self.graph_inputs = graph_inputs
        self.graph_outputs = graph_outputs
        self.graph = graph


class _Cache:
    """Cache of the captured calls of a function, by their inputs."""

    def __init__(self, function: Callable[..., Any], max_graphs: int | None) -> None:
        self._function = function
        self._max_graphs = max_graphs
        self._calls: dict[int, CachedParams] = {}

    def as_function(self) -> Callable[..., Any]:
        """Return a function that captures on a cache miss and replays on a hit."""

        @functools.wraps(self._function)
        def replay(*args: Any, **kwargs: Any) -> Any:
            return self._call(*args, **kwargs)

        return replay

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        warmup = kwargs.pop("warmup_mode", False)
        kwargs.pop("cache_tensors_list", None)
        if kwargs.pop("bypass_hpu_graphs", False):
            return self._function(*args, **kwargs)
        key = input_hash((args, kwargs))
        if key in self._calls:
            return self._replay(self._calls[key], (args, kwargs))
        if self._max_graphs is not None and len(self._calls) >= self._max_graphs:
            # A full cache evicts nothing. Other shapes run without a graph.
            return self._function(*args, **kwargs)
        self._calls[key] = self._capture((args, kwargs))
        return None if warmup else self._calls[key].graph_outputs

    def _capture(self, arguments: Any) -> CachedParams:
        leaves, structure = tree_flatten(arguments)
        inputs = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(inputs, structure)
        captured = HPUGraph()
        with torch.no_grad(), graph(captured):
            outputs = self._function(*args, **kwargs)
        return CachedParams([leaf for leaf in inputs if isinstance(leaf, torch.Tensor)], outputs, captured)

    @staticmethod
    def _replay(call: CachedParams, arguments: Any) -> Any:
        leaves, _ = tree_flatten(arguments)
        copy_to(call.graph_inputs, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        call.graph.replay()
        return call.graph_outputs

    def clear(self) -> None:
        """Drop every captured call."""
        self._calls.clear()


def wrap_in_hpu_graph(
    module: torch.nn.Module,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
) -> torch.nn.Module:
    """Wrap a module's ``forward`` to capture an HPU graph per set of input shapes, and replay it without gradients.

    Return the module. Its ``forward`` then has two more keyword arguments: ``bypass_hpu_graphs`` runs it without a
    graph, and ``warmup_mode`` returns None after a capture. ``clear_cache()`` and ``clear_inputs()`` drop all graphs.
    Beyond ``max_graphs``, shapes run without a graph. The other arguments have no effect: replays are synchronous, and
    captures keep their tensors and run their operators.
    """
    del asynchronous, disable_tensor_cache, dry_run
    cache = _Cache(module.forward, max_graphs)
    module.forward = cache.as_function()
    for name in ("clear_cache", "clear_inputs"):
        setattr(module, name, cache.clear)
    return module


def wrap_in_hpu_graph_func(
    func: Callable[..., Any],
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
) -> Callable[..., Any]:
    """Return a wrapper of ``func`` that captures and replays, with the arguments of :func:`wrap_in_hpu_graph`."""
    del asynchronous, disable_tensor_cache, dry_run
    return _Cache(func, max_graphs).as_function()
