"""Collectives of ``torch.distributed`` in compiled functions.

The bridge disallows them in graphs by their names: ``dist.all_reduce`` breaks the graph, where torch by itself would
trace a functional collective. Functional collectives that a program calls stay in the graph, in eager mode.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Final

_FUNCTIONAL: Final = "torch.distributed._functional_collectives"
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
    import torch.distributed as dist
    from torch import _dynamo as dynamo  # torch 2.0 sets the attribute of torch after its import.

    # torch 2.0 has no functional collectives.
    functional = importlib.import_module(_FUNCTIONAL) if importlib.util.find_spec(_FUNCTIONAL) else None
    # Functions of torch's that dynamo would trace in their place.
    replacements: dict[Any, Any] = getattr(functional, "traceable_collective_remaps", {})
    for name in _NAMES:
        function = getattr(dist, name, None)
        if function is not None:
            replacements.pop(function, None)
            # dynamo disallows only what it would put into a graph.
            dynamo.disallow_in_graph(dynamo.allow_in_graph(function))
