"""Collectives of ``torch.distributed`` in compiled functions.

The bridge disallows them in graphs by their names: ``dist.all_reduce`` breaks the graph, where torch by itself would
trace a functional collective. Functional collectives that a program calls stay in the graph, in eager mode.
"""

from __future__ import annotations

from typing import Any, Final

_NAMES: Final = (
    "_all_gather_base",
    "_reduce_scatter_base",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)


def disallow_in_graph() -> None:
    """Make dynamo break the graph at the collectives, from the import of dynamo on."""
    import torch._dynamo
    import torch.distributed as dist
    from torch.distributed import _functional_collectives

    # Functions of torch's that dynamo would trace in their place.
    replacements: dict[Any, Any] = vars(_functional_collectives).get("traceable_collective_remaps", {})
    for name in _NAMES:
        function = getattr(dist, name, None)
        if function is not None:
            replacements.pop(function, None)
            # dynamo disallows only what it would put into a graph.
            torch._dynamo.disallow_in_graph(torch._dynamo.allow_in_graph(function))  # noqa: SLF001 - torch's public API
