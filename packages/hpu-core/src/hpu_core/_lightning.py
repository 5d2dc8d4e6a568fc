"""Names of Lightning that hpu-core builds on, from the framework that `frameworks` selects.

Importing this module imports that framework. Type checkers use `lightning`; `pytorch_lightning` is generated from the
same sources.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO, TorchCheckpointIO
    from lightning.fabric.strategies.single_device import SingleDeviceStrategy as FabricSingleDeviceStrategy
    from lightning.fabric.strategies.strategy import Strategy as FabricStrategy
    from lightning.fabric.utilities.cloud_io import get_filesystem
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.io.wrapper import _WrappingCheckpointIO as WrappingCheckpointIO
    from lightning.pytorch.strategies import SingleDeviceStrategy, Strategy
else:
    from hpu_core import frameworks

    _framework = frameworks.current()

    Accelerator = _framework.pytorch("accelerators").Accelerator
    CheckpointIO = _framework.fabric("plugins").CheckpointIO
    FabricSingleDeviceStrategy = _framework.fabric("strategies").SingleDeviceStrategy
    FabricStrategy = _framework.fabric("strategies").Strategy
    MisconfigurationException = _framework.fabric("utilities.exceptions").MisconfigurationException
    SingleDeviceStrategy = _framework.pytorch("strategies").SingleDeviceStrategy
    Strategy = _framework.pytorch("strategies").Strategy
    TorchCheckpointIO = _framework.fabric("plugins").TorchCheckpointIO

    # Not public, and in this place on every Lightning from 2.0 to 2.6. AsyncCheckpointIO and users' own wrappers
    # derive from it, and there is no other way to tell that a checkpoint plugin waits for one to wrap.
    WrappingCheckpointIO = _framework.pytorch("plugins.io.wrapper")._WrappingCheckpointIO  # noqa: SLF001

    # Not exported either, and where Lightning's own checkpoint plugin gets its file systems on all of these versions.
    get_filesystem = _framework.fabric("utilities.cloud_io").get_filesystem

__all__ = [
    "Accelerator",
    "CheckpointIO",
    "FabricSingleDeviceStrategy",
    "FabricStrategy",
    "MisconfigurationException",
    "SingleDeviceStrategy",
    "Strategy",
    "TorchCheckpointIO",
    "WrappingCheckpointIO",
    "get_filesystem",
]
