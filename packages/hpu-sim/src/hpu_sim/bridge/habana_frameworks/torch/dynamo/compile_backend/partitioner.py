"""Partition of a graph into what is compiled and what runs in eager mode."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.torch.dynamo.compile_backend.shared_layer import is_eager
from hpu_sim.common import frames
from hpu_sim.device.events import one_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

#: Prefix of the submodules that are compiled.
PARTITION: Final = "fused_"
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


def partition(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Move each part of a graph that is compiled into a submodule ``fused_N``."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    class Compiled(OperatorSupportBase):
        def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
            del submodules
            return node.op == "call_function" and not is_eager(node)

    partitioner = CapabilityBasedPartitioner(graph, Compiled(), allows_single_node_partition=True)
    partitioned: torch.fx.GraphModule = partitioner.fuse_partitions(partitioner.propose_partitions())
    return partitioned


def keep_fused_attention(graph: torch.fx.GraphModule) -> None:
    """Have the attention that FusedSDPA has traced run as one kernel; torch's has the same operator."""
    from habana_frameworks.torch.hpex.kernels import attention

    for node in graph.graph.nodes:
        files = {file for file, _ in _FRAME.findall(node.meta.get("stack_trace") or "")}
        if "scaled_dot_product" in str(node.target) and attention.__file__ in files:
            node.args, node.target = (node.target, *node.args), _run_as_one_kernel
    graph.recompile()


def _run_as_one_kernel(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with one_kernel():
        return function(*args, **kwargs)


def eager_nodes(partitioned: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the operators that stayed in eager mode."""
    nodes = partitioned.graph.nodes
    return [node for node in nodes if node.op == "call_function" and node.target is not operator.getitem]


def program_line(node: torch.fx.Node) -> str:
    """Return ``file:line`` of the program that a node comes from; empty if unknown."""
    return frames.innermost_program_line(_FRAME.findall(node.meta.get("stack_trace") or ""))
