"""Number of graphs that this process has compiled."""

from __future__ import annotations

import sys
from typing import Any

from hpu_core import bridge

__all__ = ["compilation_count", "raise_compile_limits"]

# torch's limit on the graphs of a function, above which the function runs uncompiled: the name since torch 2.6, and the
# older one.
_LIMITS = ("recompile_limit", "cache_size_limit")
_ACCUMULATED_LIMITS = ("accumulated_recompile_limit", "accumulated_cache_size_limit")
# torch's default relation of the two limits.
_ACCUMULATED_FACTOR = 8


def compilation_count() -> int | None:
    """Return the number of compilations so far: the bridge's, or those of torch.compile; None if nothing compiles."""
    if bridge.is_loaded():
        total = bridge.metric("graph_compilation").get("TotalNumber")
        return total if isinstance(total, int) else None
    if "torch._dynamo.utils" in sys.modules:
        counters: Any = sys.modules["torch._dynamo.utils"].counters
        # Other packages import dynamo; a program that compiles nothing has no graphs.
        return int(counters["stats"]["unique_graphs"]) or None
    return None


def raise_compile_limits(shapes: int) -> None:
    """Let torch.compile keep a graph for each shape; by default it stops compiling after 8, with one warning."""
    import torch._dynamo  # takes seconds, so only programs that compile do it

    config: Any = torch._dynamo.config  # noqa: SLF001 - the documented place of these options
    # One more graph for a last batch of another size, and one for evaluation.
    least = shapes + 2
    for names, value in ((_LIMITS, least), (_ACCUMULATED_LIMITS, _ACCUMULATED_FACTOR * least)):
        name = next((name for name in names if hasattr(config, name)), None)
        if name is not None:
            setattr(config, name, max(getattr(config, name), value))
