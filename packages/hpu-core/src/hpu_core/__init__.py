"""What PyTorch Lightning needs to train on Intel Gaudi (HPU): devices, accelerator, strategy, checkpoints.

Importing this package loads neither torch, Lightning nor the Gaudi bridge, starts no process and opens no card:
every public name is fetched from its module when it is first used. On a machine with a card or the simulator, Lightning
is taught the name "hpu" as soon as it is imported; `hpu_core.registration` says how, and HPU_CORE_AUTOLOAD=0 keeps it
from happening.
"""

import importlib
from typing import TYPE_CHECKING

from hpu_core import registration as _registration

if TYPE_CHECKING:
    from hpu_core.__about__ import __version__
    from hpu_core.accelerator import HPUAccelerator
    from hpu_core.bridge import is_lazy, mark_step
    from hpu_core.checkpoint import HPUCheckpointIO
    from hpu_core.discovery import (
        auto_device_count,
        device_count,
        device_name,
        devices,
        is_available,
        parse_devices,
        synapse_version,
    )
    from hpu_core.hccl import initialize_hccl
    from hpu_core.strategy import SingleHPUStrategy

__all__ = [
    "HPUAccelerator",
    "HPUCheckpointIO",
    "SingleHPUStrategy",
    "__version__",
    "auto_device_count",
    "device_count",
    "device_name",
    "devices",
    "initialize_hccl",
    "is_available",
    "is_lazy",
    "mark_step",
    "parse_devices",
    "synapse_version",
]

# Where each public name lives; a test holds this table and `__all__` together.
_MODULES = {
    "HPUAccelerator": "hpu_core.accelerator",
    "HPUCheckpointIO": "hpu_core.checkpoint",
    "SingleHPUStrategy": "hpu_core.strategy",
    "__version__": "hpu_core.__about__",
    "auto_device_count": "hpu_core.discovery",
    "device_count": "hpu_core.discovery",
    "device_name": "hpu_core.discovery",
    "devices": "hpu_core.discovery",
    "initialize_hccl": "hpu_core.hccl",
    "is_available": "hpu_core.discovery",
    "is_lazy": "hpu_core.bridge",
    "mark_step": "hpu_core.bridge",
    "parse_devices": "hpu_core.discovery",
    "synapse_version": "hpu_core.discovery",
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


_registration.autoload()
