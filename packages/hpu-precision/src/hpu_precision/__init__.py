"""Mixed precision for PyTorch Lightning on Intel Gaudi (HPU), with the same op lists on every SynapseAI release.

Importing this package imports neither torch, Lightning nor the Gaudi bridge, starts no process and opens no device.
Public names are imported on first use.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_precision.__about__ import __version__
    from hpu_precision.fabric import FabricHPUPrecision
    from hpu_precision.op_lists import OpListError, OpLists, default_op_lists
    from hpu_precision.plugin import HPUPrecisionPlugin

__all__ = [
    "FabricHPUPrecision",
    "HPUPrecisionPlugin",
    "OpListError",
    "OpLists",
    "__version__",
    "default_op_lists",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_precision.__about__": ["__version__"],
        "hpu_precision.fabric": ["FabricHPUPrecision"],
        "hpu_precision.op_lists": ["OpListError", "OpLists", "default_op_lists"],
        "hpu_precision.plugin": ["HPUPrecisionPlugin"],
    },
)
