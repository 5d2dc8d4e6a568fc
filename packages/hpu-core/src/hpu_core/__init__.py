"""What PyTorch Lightning needs to train on Intel Gaudi (HPU): devices, accelerator, strategy, checkpoints.

Importing this package loads neither torch, Lightning nor the Gaudi bridge, starts no process and opens no card:
every public name is fetched from its module when it is first used. On a machine with a card or the simulator, Lightning
is taught the name "hpu" as soon as it is imported; `hpu_core.registration` says how, and HPU_CORE_AUTOLOAD=0 keeps it
from happening.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports
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
    from hpu_core.distributed import RankFailedError
    from hpu_core.hccl import initialize_hccl
    from hpu_core.strategy import SingleHPUStrategy

__all__ = [
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
    "synapse_version",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_core.__about__": ["__version__"],
        "hpu_core.accelerator": ["HPUAccelerator"],
        "hpu_core.bridge": ["is_lazy", "mark_step"],
        "hpu_core.checkpoint": ["HPUCheckpointIO"],
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
        "hpu_core.hccl": ["initialize_hccl"],
        "hpu_core.strategy": ["SingleHPUStrategy"],
    },
)

_registration.autoload()
