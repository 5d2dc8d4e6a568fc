"""Names of Lightning that hpu-core builds on, from the framework that `frameworks` selects.

Importing this module imports that framework. Type checkers use `lightning`; `pytorch_lightning` is generated from the
same sources.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO, TorchCheckpointIO
    from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
    from lightning.fabric.plugins.environments.lightning import LightningEnvironment
    from lightning.fabric.strategies.launchers.subprocess_script import (
        _SubprocessScriptLauncher as FabricSubprocessScriptLauncher,
    )
    from lightning.fabric.strategies.single_device import SingleDeviceStrategy as FabricSingleDeviceStrategy
    from lightning.fabric.strategies.strategy import Strategy as FabricStrategy
    from lightning.fabric.utilities.device_dtype_mixin import _update_properties as update_properties
    from lightning.fabric.utilities.distributed import _init_dist_connection as init_dist_connection
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins.io.wrapper import _WrappingCheckpointIO as WrappingCheckpointIO
    from lightning.pytorch.strategies import SingleDeviceStrategy, Strategy
    from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher as SubprocessScriptLauncher
    from lightning.pytorch.utilities import rank_zero_info
    from lightning.pytorch.utilities.exceptions import SIGTERMException
    from lightning.pytorch.utilities.exceptions import _TunerExitException as TunerExitException
else:
    from hpu_core import frameworks

    _framework = frameworks.current()

    Accelerator = _framework.pytorch("accelerators").Accelerator
    CheckpointIO = _framework.fabric("plugins").CheckpointIO
    ClusterEnvironment = _framework.fabric("plugins.environments").ClusterEnvironment
    FabricSingleDeviceStrategy = _framework.fabric("strategies").SingleDeviceStrategy
    FabricStrategy = _framework.fabric("strategies").Strategy
    LightningEnvironment = _framework.fabric("plugins.environments").LightningEnvironment
    MisconfigurationException = _framework.fabric("utilities.exceptions").MisconfigurationException
    SIGTERMException = _framework.pytorch("utilities.exceptions").SIGTERMException
    SingleDeviceStrategy = _framework.pytorch("strategies").SingleDeviceStrategy
    Strategy = _framework.pytorch("strategies").Strategy
    TorchCheckpointIO = _framework.fabric("plugins").TorchCheckpointIO
    rank_zero_info = _framework.pytorch("utilities").rank_zero_info

    # Private, but in the same module in Lightning 2.0 to 2.6. AsyncCheckpointIO and users' own wrappers derive from it,
    # and no public API shows that a checkpoint plugin wraps another one.
    WrappingCheckpointIO = _framework.pytorch("plugins.io.wrapper")._WrappingCheckpointIO  # noqa: SLF001

    # Private, but in the same modules in Lightning 2.0 to 2.6, which has no public API to launch ranks or to create a
    # process group.
    _launchers = _framework.fabric("strategies.launchers.subprocess_script")
    FabricSubprocessScriptLauncher = _launchers._SubprocessScriptLauncher  # noqa: SLF001
    SubprocessScriptLauncher = _framework.pytorch("strategies.launchers")._SubprocessScriptLauncher  # noqa: SLF001
    init_dist_connection = _framework.fabric("utilities.distributed")._init_dist_connection  # noqa: SLF001

    # Private, but in the same module in Lightning 2.0 to 2.6. Tuner ends a training by it, on all ranks.
    TunerExitException = _framework.pytorch("utilities.exceptions")._TunerExitException  # noqa: SLF001

    # Private, but in the same module in Lightning 2.0 to 2.6: sets `LightningModule.device` without moving the module.
    _mixin = _framework.fabric("utilities.device_dtype_mixin")
    # Lightning 2.0 has a method, whose name Python mangles.
    _method = vars(_mixin._DeviceDtypeModuleMixin).get("_DeviceDtypeModuleMixin__update_properties")  # noqa: SLF001
    update_properties = getattr(_mixin, "_update_properties", _method)


def load_late_loader_states(trainer: Any) -> None:
    """Load the positions of the training's loaders, if they were made before the checkpoint was restored.

    `estimated_stepping_batches` in `configure_optimizers` makes them; Lightning 2.6 loads positions then only.
    """
    fit_loop = trainer.fit_loop
    if getattr(fit_loop, "_combined_loader_states_to_load", None):
        fit_loop._load_combined_loader_states()  # noqa: SLF001 - this module guards Lightning's private names.
        iter(fit_loop._data_fetcher)  # noqa: SLF001 - as above.
