"""torch.compile for training on Intel Gaudi (HPU): regions of a model, compiled in place.

Importing this package does not import torch, Lightning or the Gaudi bridge, starts no process and opens no device. Each
public name is imported from its module on first use.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_compile.__about__ import __version__
    from hpu_compile.callback import HPUCompile
    from hpu_compile.compilation import Compilation, RecompileLimitWarning, compile_regions
    from hpu_compile.regions import Region, find_regions
    from hpu_compile.report import CompileReport, GraphBreak, Recompilation, RegionReport

__all__ = [
    "Compilation",
    "CompileReport",
    "GraphBreak",
    "HPUCompile",
    "Recompilation",
    "RecompileLimitWarning",
    "Region",
    "RegionReport",
    "__version__",
    "compile_regions",
    "find_regions",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_compile.__about__": ["__version__"],
        "hpu_compile.callback": ["HPUCompile"],
        "hpu_compile.compilation": [
            "Compilation",
            "RecompileLimitWarning",
            "compile_regions",
        ],
        "hpu_compile.regions": ["Region", "find_regions"],
        "hpu_compile.report": ["CompileReport", "GraphBreak", "Recompilation", "RegionReport"],
    },
)
