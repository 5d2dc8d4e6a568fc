"""Names of Lightning that hpu-ddp uses, from the framework that `hpu_core.frameworks` selects.

Importing this module imports that framework. Type checkers see the names of `lightning`; `pytorch_lightning` has the
same ones.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lightning.fabric.strategies.ddp import DDPStrategy as FabricDDPStrategy
    from lightning.fabric.strategies.launchers.multiprocessing import (
        _MultiProcessingLauncher as FabricMultiProcessingLauncher,
    )
    from lightning.fabric.utilities.seed import reset_seed
    from lightning.pytorch.strategies import DDPStrategy
    from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher as MultiProcessingLauncher
else:
    from hpu_core import frameworks

    _framework = frameworks.current()

    DDPStrategy = _framework.pytorch("strategies").DDPStrategy
    FabricDDPStrategy = _framework.fabric("strategies").DDPStrategy
    reset_seed = _framework.fabric("utilities.seed").reset_seed

    # Private, but in the same modules in Lightning 2.0 to 2.6. Lightning has no public multiprocessing launcher.
    FabricMultiProcessingLauncher = _framework.fabric("strategies.launchers.multiprocessing")._MultiProcessingLauncher  # noqa: SLF001
    MultiProcessingLauncher = _framework.pytorch("strategies.launchers")._MultiProcessingLauncher  # noqa: SLF001

__all__ = [
    "DDPStrategy",
    "FabricDDPStrategy",
    "FabricMultiProcessingLauncher",
    "MultiProcessingLauncher",
    "constructor_arguments",
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
    return {**arguments, **strategy._ddp_kwargs}  # noqa: SLF001 - no public attribute has them.
