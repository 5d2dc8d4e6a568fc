"""Mixed precision for PyTorch Lightning on Intel Gaudi (HPU), with op lists that mean the same on every release.

Importing this package loads neither torch, Lightning nor the Gaudi bridge, starts no process and opens no card: every
public name is fetched from its module when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

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

# Where each public name lives; a test holds this table and `__all__` together.
_MODULES = {
    "FabricHPUPrecision": "hpu_precision.fabric",
    "HPUPrecisionPlugin": "hpu_precision.plugin",
    "OpListError": "hpu_precision.op_lists",
    "OpLists": "hpu_precision.op_lists",
    "__version__": "hpu_precision.__about__",
    "default_op_lists": "hpu_precision.op_lists",
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
