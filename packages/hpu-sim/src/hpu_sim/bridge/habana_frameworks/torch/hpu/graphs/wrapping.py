"""HPU graphs of forward passes, one per set of input shapes, for inference."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from habana_frameworks.torch.hpu.graphs.capture import HPUGraph, graph, tensors_in
from habana_frameworks.torch.hpu.graphs.inputs import copy_to, input_hash

if TYPE_CHECKING:
    from collections.abc import Callable


class CachedParams:
    """Captured call: its input tensors, its outputs and its graph."""

    def __init__(self, graph_inputs: Any, graph_outputs: Any, graph: HPUGraph) -> None:
        self.graph_inputs = graph_inputs
        self.graph_outputs = graph_outputs
        self.graph = graph


def _cached(function: Callable[..., Any], max_graphs: int | None) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Return a function that captures a call for new inputs and replays it for known ones, and what drops the calls."""
    calls: dict[int, CachedParams] = {}

    @functools.wraps(function)
    def replay(
        *args: Any,
        warmup_mode: bool = False,
        bypass_hpu_graphs: bool = False,
        cache_tensors_list: Any = None,  # noqa: ARG001 - an option of the bridge, kept from `function`
        **kwargs: Any,
    ) -> Any:
        key = 0 if bypass_hpu_graphs else input_hash((args, kwargs))
        # A full cache evicts nothing. Other shapes run without a graph.
        is_full = max_graphs is not None and len(calls) >= max_graphs
        if bypass_hpu_graphs or (is_full and key not in calls):
            return function(*args, **kwargs)
        if key in calls:
            copy_to(calls[key].graph_inputs, tensors_in((args, kwargs)))
            calls[key].graph.replay()
        else:
            calls[key] = _capture(function, (args, kwargs))
            if warmup_mode:
                return None
        return calls[key].graph_outputs

    return replay, calls.clear


def _capture(function: Callable[..., Any], arguments: Any) -> CachedParams:
    leaves, structure = tree_flatten(arguments)
    inputs = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    args, kwargs = tree_unflatten(inputs, structure)
    captured = HPUGraph()
    with torch.no_grad(), graph(captured):
        outputs = function(*args, **kwargs)
    return CachedParams(tensors_in(inputs), outputs, captured)


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
    module.forward, clear = _cached(module.forward, max_graphs)
    for name in ("clear_cache", "clear_inputs"):
        setattr(module, name, clear)
    return module
