"""Order of a media pipe's graph, and the rules that it must keep."""

from __future__ import annotations

import graphlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from habana_frameworks.mediapipe.backend.nodes import Node, TensorNode

__all__ = ["ordered_nodes", "validate"]

_ORDER: Final = ("reader", "cpu", "decoder", "hpu")


def ordered_nodes(outputs: Sequence[TensorNode]) -> list[Node]:
    """Return the nodes that outputs depend on, each after its inputs."""
    graph: dict[Node, list[Node]] = {}
    pending = [output.node for output in outputs]
    while pending:
        node = pending.pop()
        if node not in graph:
            graph[node] = [tensor.node for tensor in node.inputs.values()]
            pending += graph[node]
    return list(graphlib.TopologicalSorter(graph).static_order())


def validate(nodes: Sequence[Node], outputs: Sequence[TensorNode], device: str) -> None:
    """Check a graph.

    Args:
        nodes: Nodes in order.
        outputs: Outputs of the pipe.
        device: "cpu", "mixed" or "legacy".

    Raises:
        ValueError: A node comes after a later part of the pipe, or the pipe has no place for it.
        RuntimeError: A pipe of the CPU has a part on the card.
        NotImplementedError: A legacy pipe has an operator that exists in C++ only.
    """
    for node in nodes:
        for tensor in node.inputs.values():
            if _ORDER.index(tensor.node.kind) > _ORDER.index(node.kind):
                raise ValueError(
                    f"Detect CPU/HPU and decoder mix up: {node.operator.name} ({node.kind}) follows "
                    f"{tensor.node.operator.name} ({tensor.node.kind})"
                )
    on_card = [node.operator.name for node in nodes if node.kind in {"decoder", "hpu"}]
    tensors = [*outputs, *(tensor for node in nodes for tensor in node.inputs.values())]
    if device == "cpu" and (on_card or any(tensor.is_copied for tensor in tensors)):
        raise RuntimeError(f"a pipe of device 'cpu' has a part on hpu ({', '.join(on_card) or 'as_hpu'}): use 'mixed'")
    if device != "legacy":
        return
    if sum(node.kind == "decoder" for node in nodes) > 1:
        raise ValueError("a legacy pipe must have one decoder")
    if not on_card:
        raise ValueError("a legacy pipe must have a decoder or another node on hpu")
    for node in nodes:
        if node.operator.is_cpp_only and node.device == "cpu":
            raise NotImplementedError(f"{node.operator.name} exists in C++ only: use device 'mixed'")
