"""Where a training step on Intel Gaudi (HPU) spends its time: a profiler for PyTorch Lightning, and a report.

Importing this package loads neither torch, Lightning nor the Gaudi bridge, starts no process and opens no card: every
public name is fetched from its module when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpu_profiler.__about__ import __version__
    from hpu_profiler.profiler import HPUProfiler

__all__ = ["HPUProfiler", "__version__"]

# Where each public name lives; a test holds this table and `__all__` together.
_MODULES = {
    "HPUProfiler": "hpu_profiler.profiler",
    "__version__": "hpu_profiler.__about__",
}


def __getattr__(name: str) -> object:
    """Fetch a public name from its module on first use (PEP 562).

    Raises:
        AttributeError: `name` is not public here.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    # Kept in the module's namespace, so that the next use does not come here again.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, fetched or not, for tab completion."""
    return sorted({*globals(), *__all__})
