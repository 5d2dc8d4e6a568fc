"""Intel Gaudi (HPU) support for PyTorch Lightning: devices, accelerator, single-device strategies and checkpoints.

Importing this package imports neither torch, Lightning nor the Gaudi bridge, starts no process and opens no device.
Public names are imported on first use. On a machine with a device or the simulator the import registers HPU with
Lightning; see `hpu_core.registration`. HPU_CORE_AUTOLOAD=0 disables that.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports
from hpu_core import registration as _registration
from hpu_core.registration import register, unregister

if TYPE_CHECKING:
    from hpu_core.__about__ import __version__
    from hpu_core.accelerator import HPUAccelerator
    from hpu_core.bridge import is_lazy, mark_step
    from hpu_core.checkpoints.plugin import HPUCheckpointIO
    from hpu_core.discovery import (
        auto_device_count,
        device_count,
        device_name,
        devices,
        is_available,
        parse_devices,
        synapse_version,
    )
    from hpu_core.distributed import RankFailedError
    from hpu_core.fabric import FabricSingleHPUStrategy
    from hpu_core.hccl import initialize_hccl
    from hpu_core.strategy import SingleHPUStrategy

__all__ = [
    "FabricSingleHPUStrategy",
    "HPUAccelerator",
    "HPUCheckpointIO",
    "RankFailedError",
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
    "register",
    "synapse_version",
    "unregister",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_core.__about__": ["__version__"],
        "hpu_core.accelerator": ["HPUAccelerator"],
        "hpu_core.bridge": ["is_lazy", "mark_step"],
        "hpu_core.checkpoints.plugin": ["HPUCheckpointIO"],
        "hpu_core.discovery": [
            "auto_device_count",
            "device_count",
            "device_name",
            "devices",
            "is_available",
            "parse_devices",
            "synapse_version",
        ],
        "hpu_core.distributed": ["RankFailedError"],
        "hpu_core.fabric": ["FabricSingleHPUStrategy"],
        "hpu_core.hccl": ["initialize_hccl"],
        "hpu_core.strategy": ["SingleHPUStrategy"],
    },
)

_registration.autoload()
