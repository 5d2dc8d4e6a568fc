"""Acts on the modules that define what Lightning decides by once they have been imported, whoever imports them.

The module that defines something has to be met before the modules that use it: those take it over by name.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hpu_core.registration.imports import PostImportHook

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

# Beside the modules of each framework stands its name. `hpu_core.frameworks` has these, too, and loads more than may be
# loaded here.
MODULES: "Final[dict[str, FrameworkName]]" = {
    "lightning.pytorch.accelerators.hpu": "lightning",
    "lightning.pytorch.trainer.connectors.accelerator_connector": "lightning",
    "lightning.pytorch.trainer.setup": "lightning",
    "lightning.pytorch.callbacks.throughput_monitor": "lightning",
    "lightning.pytorch.cli": "lightning",
    "lightning.pytorch.utilities.memory": "lightning",
    "lightning.fabric.connector": "lightning",
    "lightning.fabric.utilities.throughput": "lightning",
    "pytorch_lightning.accelerators.hpu": "pytorch_lightning",
    "pytorch_lightning.trainer.connectors.accelerator_connector": "pytorch_lightning",
    "pytorch_lightning.trainer.setup": "pytorch_lightning",
    "pytorch_lightning.callbacks.throughput_monitor": "pytorch_lightning",
    "pytorch_lightning.cli": "pytorch_lightning",
    "pytorch_lightning.utilities.memory": "pytorch_lightning",
    "lightning_fabric.connector": "pytorch_lightning",
    "lightning_fabric.utilities.throughput": "pytorch_lightning",
}


def install() -> None:
    """Act on what has been imported, and from now on on what will be."""
    _finder.install()


def remove() -> None:
    """Undo what was done to each module, and wait for none any more."""
    _finder.remove()
    # Imported by the first module that was acted on; without one there is nothing to undo.
    if f"{__package__}._swap" in sys.modules:
        from hpu_core.registration import _swap

        _swap.undo()


def _act(module: ModuleType) -> None:
    # Lightning is loaded by now, so that what this loads weighs nothing.
    if module.__name__.endswith(".cli"):
        from hpu_core.registration import _command_line

        _command_line.load_classes(MODULES[module.__name__])
    elif module.__name__.endswith(".accelerators.hpu"):
        from hpu_core.registration import _lightning_2_0

        _lightning_2_0.spare_hmp(module)
    else:
        from hpu_core.registration import _swap

        _swap.swap(module)


_finder: Final = PostImportHook(MODULES, _act)
