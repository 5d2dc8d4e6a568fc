"""The Lightning names that hpu-ddp builds on, taken from the framework that `hpu_core.frameworks` decided for.

Importing this module imports that Lightning. Type checkers see the names of `lightning`; those of `pytorch_lightning`
are generated from the same sources.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO
    from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
    from lightning.fabric.plugins.environments.lightning import LightningEnvironment
    from lightning.fabric.strategies.ddp import DDPStrategy as FabricDDPStrategy
    from lightning.fabric.strategies.launchers.multiprocessing import (
        _MultiProcessingLauncher as FabricMultiProcessingLauncher,
    )
    from lightning.fabric.utilities.distributed import _init_dist_connection as init_dist_connection
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.fabric.utilities.seed import reset_seed
    from lightning.pytorch.strategies import DDPStrategy
    from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher as MultiProcessingLauncher
    from lightning.pytorch.utilities.exceptions import SIGTERMException
else:
    from hpu_core import frameworks

    _framework = frameworks.current()

    CheckpointIO = _framework.fabric("plugins").CheckpointIO
    ClusterEnvironment = _framework.fabric("plugins.environments").ClusterEnvironment
    DDPStrategy = _framework.pytorch("strategies").DDPStrategy
    FabricDDPStrategy = _framework.fabric("strategies").DDPStrategy
    LightningEnvironment = _framework.fabric("plugins.environments").LightningEnvironment
    MisconfigurationException = _framework.fabric("utilities.exceptions").MisconfigurationException
    SIGTERMException = _framework.pytorch("utilities.exceptions").SIGTERMException
    reset_seed = _framework.fabric("utilities.seed").reset_seed

    # None of these is public, and each is in this place on every Lightning from 2.0 to 2.6. Lightning's own strategies
    # are built from them, and there is no other way to start processes or to make a process group as they do.
    FabricMultiProcessingLauncher = _framework.fabric("strategies.launchers.multiprocessing")._MultiProcessingLauncher  # noqa: SLF001
    MultiProcessingLauncher = _framework.pytorch("strategies.launchers")._MultiProcessingLauncher  # noqa: SLF001
    init_dist_connection = _framework.fabric("utilities.distributed")._init_dist_connection  # noqa: SLF001

__all__ = [
    "CheckpointIO",
    "ClusterEnvironment",
    "DDPStrategy",
    "FabricDDPStrategy",
    "FabricMultiProcessingLauncher",
    "LightningEnvironment",
    "MisconfigurationException",
    "MultiProcessingLauncher",
    "SIGTERMException",
    "constructor_arguments",
    "init_dist_connection",
    "reset_seed",
]

# Attributes in which Lightning 2.0 to 2.6 keep the arguments of DDPStrategy, the Trainer's and Fabric's, by argument.
_ATTRIBUTES: Final = {
    "accelerator": "_accelerator",
    "parallel_devices": "_parallel_devices",
    "cluster_environment": "cluster_environment",
    "checkpoint_io": "_checkpoint_io",
    "precision_plugin": "_precision_plugin",
    "precision": "_precision",
    "ddp_comm_state": "_ddp_comm_state",
    "ddp_comm_hook": "_ddp_comm_hook",
    "ddp_comm_wrapper": "_ddp_comm_wrapper",
    "model_averaging_period": "_model_averaging_period",
    "process_group_backend": "_process_group_backend",
    "timeout": "_timeout",
    "start_method": "_start_method",
}


def constructor_arguments(strategy: "DDPStrategy | FabricDDPStrategy") -> dict[str, Any]:
    """Return the arguments that a DDPStrategy of Lightning was constructed with.

    Args:
        strategy: The strategy, not set up yet.
    """
    attributes = {name: getattr(strategy, name) for name in _ATTRIBUTES.values() if name in vars(strategy)}
    arguments = {name: attributes[key] for name, key in _ATTRIBUTES.items() if key in attributes}
    return {**arguments, **strategy._ddp_kwargs}  # noqa: SLF001 - see above.
