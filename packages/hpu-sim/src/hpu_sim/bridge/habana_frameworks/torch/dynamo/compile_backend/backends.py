"""``hpu_backend`` of torch.compile, which partitions graphs as the bridge does, and runs them operator by operator."""
# hpu-doctor verify: compiled-module-agrees

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.torch.dynamo.compile_backend import config, partitioner
from habana_frameworks.torch.dynamo.compile_backend.dynamic_shapes import Recipes
from habana_frameworks.torch.hpu import metrics
from hpu_sim.common import frames
from hpu_sim.device.events import Event, emit
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import torch

_NAME: Final = "hpu_backend"


def _compile_graph(
    graph: torch.fx.GraphModule, examples: Any, *, part: str, is_static: bool, caller: FrameType | None
) -> Callable[..., Any]:
    native().join_pipeline()
    # The backward pass compiles its graph in a thread of autograd, for the call of the forward pass.
    with frames.with_origin(caller):
        graph = _partition(graph)
        num_partitions = sum(name.startswith(partitioner.PARTITION) for name, _ in graph.named_children())
        for _, partition in graph.named_children():
            partitioner.keep_fused_attention(partition)
        emit(Event("compiled_graph", part, f"{num_partitions} recipe{'' if num_partitions == 1 else 's'}"))
    recipes = Recipes(examples, is_static=is_static)

    def run(arguments: list[Any]) -> Any:
        inputs = list(arguments)
        if recipes.must_compile(inputs):
            # A card compiles each partition to a recipe.
            metrics.count_compilations(num_partitions)
        # The boxed convention: clearing the caller's list lets the graph free each input after its last use.
        arguments.clear()
        return graph(*inputs)

    run._boxed_call = True  # type: ignore[attr-defined] # noqa: SLF001 - functorch's marker of the boxed convention
    return run


def _partition(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Split a graph at the operators that stay in eager mode, which the report lists.

    Raises:
        AssertionError: If there are such operators, and PT_HPU_USE_EAGER_FALLBACK=0 forbids them.
    """
    partitioned: torch.fx.GraphModule = partitioner.partition(graph)
    eager = partitioner.eager_nodes(partitioned)
    if eager and os.environ.get(config.EAGER_FALLBACK_VARIABLE) == "0":
        raise AssertionError(
            f"{config.EAGER_FALLBACK_VARIABLE}=0 forbids operators in eager mode, got "
            f"{', '.join(sorted({str(node.target) for node in eager}))} (simulated)"
        )
    for node in eager:
        emit(Event("graph_break", str(node.target), partitioner.program_line(node)))
    return partitioned


def _report_break(graph_module: torch.fx.GraphModule) -> None:
    """Report why dynamo traced no further than this graph, if the function goes on."""
    reason: Any = getattr(graph_module, "compile_subgraph_reason", None)
    # torch 2.0 does not tell a break from a return.
    if getattr(reason, "graph_break", False):
        line = frames.innermost_program_line((frame.filename, frame.lineno) for frame in reason.user_stack)
        emit(Event("trace_break", reason.reason.strip().partition("\n")[0], line))


def hpu_backend(
    graph_module: torch.fx.GraphModule, example_inputs: list[torch.Tensor], **kwargs: Any
) -> Callable[..., Any]:
    """Compile a graph for torch.compile.

    Raises:
        AttributeError: If an option is unknown.
    """
    # A local import, because this module is imported during the import of torch._dynamo.
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition

    _report_break(graph_module)
    with config.patch(kwargs.get("options") or {}):
        caller = frames.save(sys._getframe(1))  # noqa: SLF001 - documented API
        compile_graph = functools.partial(_compile_graph, is_static=config.force_static_compile, caller=caller)
        compiler = aot_autograd(
            fw_compiler=functools.partial(compile_graph, part="forward"),
            bw_compiler=functools.partial(compile_graph, part="backward"),
            # The bridge splits forward and backward so, rather than by the least memory.
            partition_fn=default_partition,
            keep_inference_input_mutations=config.keep_input_mutations,
        )
        compiled: Callable[..., Any] = compiler(graph_module, example_inputs)
    return compiled


def register() -> None:
    """Register the backend's name in dynamo."""
    from torch._dynamo.backends.registry import register_backend

    register_backend(hpu_backend, name=_NAME)
