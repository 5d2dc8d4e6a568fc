"""Where a training step on Intel Gaudi (HPU) spends its time: a profiler for PyTorch Lightning, and a report.

Importing this package loads neither torch, Lightning nor the Gaudi bridge, starts no process and opens no card: every
public name is fetched from its module when it is first used.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_profiler.__about__ import __version__
    from hpu_profiler.profiler import HPUProfiler

__all__ = ["HPUProfiler", "__version__"]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_profiler.__about__": ["__version__"],
        "hpu_profiler.profiler": ["HPUProfiler"],
    },
)
