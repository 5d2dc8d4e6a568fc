"""Names of Lightning that hpu-ddp uses, from the framework that `hpu_core.frameworks` selects.

Importing this module imports that framework. Type checkers see the names of `lightning`; `pytorch_lightning` has the
same ones.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.fabric.strategies.ddp import DDPStrategy as FabricDDPStrategy
    from lightning.fabric.strategies.launchers.multiprocessing import (
        _MultiProcessingLauncher as FabricMultiProcessingLauncher,
    )
    from lightning.pytorch.strategies import DDPStrategy
    from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher as MultiProcessingLauncher
else:
    from hpu_core import frameworks

    _framework = frameworks.current()

    DDPStrategy = _framework.pytorch("strategies").DDPStrategy
    FabricDDPStrategy = _framework.fabric("strategies").DDPStrategy

    # Private, but in the same modules in Lightning 2.0 to 2.6. Lightning has no public multiprocessing launcher.
    FabricMultiProcessingLauncher = _framework.fabric("strategies.launchers.multiprocessing")._MultiProcessingLauncher  # noqa: SLF001
    MultiProcessingLauncher = _framework.pytorch("strategies.launchers")._MultiProcessingLauncher  # noqa: SLF001
