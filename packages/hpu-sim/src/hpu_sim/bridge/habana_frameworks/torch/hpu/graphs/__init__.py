"""HPU graphs, captured operators that can be replayed, for lazy mode.

A capture records the operators at torch's dispatcher, and a replay runs them on the same tensors. As on a card, a
replay does not rerun Python code, and its results are in the tensors of the capture.
"""

from habana_frameworks.torch.hpu.graphs.cacher import ModuleCacher
from habana_frameworks.torch.hpu.graphs.callables import make_graphed_callables
from habana_frameworks.torch.hpu.graphs.capture import HPUGraph, graph, is_current_stream_capturing
from habana_frameworks.torch.hpu.graphs.wrapping import wrap_in_hpu_graph

__all__ = [
    "HPUGraph",
    "ModuleCacher",
    "graph",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "wrap_in_hpu_graph",
]
