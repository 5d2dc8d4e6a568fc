"""DeepSpeed's ZeRO on Intel Gaudi (HPU) with PyTorch Lightning: models whose state does not fit on one card.

Importing this package loads neither torch, Lightning, DeepSpeed nor the Gaudi bridge, starts no process and opens no
card: every public name is fetched from its module when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpu_deepspeed.__about__ import __version__
    from hpu_deepspeed.fabric import FabricHPUDeepSpeedStrategy
    from hpu_deepspeed.precision import HPUDeepSpeedPrecisionPlugin
    from hpu_deepspeed.strategy import HPUDeepSpeedStrategy

__all__ = [
    "FabricHPUDeepSpeedStrategy",
    "HPUDeepSpeedPrecisionPlugin",
    "HPUDeepSpeedStrategy",
    "__version__",
]

# Where each public name lives; a test holds this table and `__all__` together.
_MODULES = {
    "FabricHPUDeepSpeedStrategy": "hpu_deepspeed.fabric",
    "HPUDeepSpeedPrecisionPlugin": "hpu_deepspeed.precision",
    "HPUDeepSpeedStrategy": "hpu_deepspeed.strategy",
    "__version__": "hpu_deepspeed.__about__",
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
