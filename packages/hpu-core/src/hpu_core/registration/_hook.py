"""Acts on the modules that define what Lightning decides by once they have been imported, whoever imports them.

The module that defines something has to be met before the modules that use it: those take it over by name.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

# Beside the modules of each framework stands its name. `hpu_core.frameworks` has these, too, and loads more than may be
# loaded here.
MODULES: "Final[dict[str, FrameworkName]]" = {
    "lightning.pytorch.trainer.connectors.accelerator_connector": "lightning",
    "lightning.pytorch.trainer.setup": "lightning",
    "lightning.pytorch.callbacks.throughput_monitor": "lightning",
    "lightning.pytorch.cli": "lightning",
    "lightning.pytorch.utilities.memory": "lightning",
    "lightning.fabric.connector": "lightning",
    "lightning.fabric.utilities.throughput": "lightning",
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
    if _finder in sys.meta_path:
        return
    sys.meta_path.insert(0, _finder)
    for name in MODULES:
        module = sys.modules.get(name)
        if module is not None:
            _act(module)


def remove() -> None:
    """Undo what was done to each module, and wait for none any more."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    # Imported by the first module that was acted on; without one there is nothing to undo.
    if f"{__package__}._swap" in sys.modules:
        from hpu_core.registration import _swap

        _swap.undo()


def _act(module: ModuleType) -> None:
    # Lightning is loaded by now, so that what this loads weighs nothing.
    if module.__name__.endswith(".cli"):
        from hpu_core.registration import _command_line

        _command_line.load_classes(MODULES[module.__name__])
        return
    from hpu_core.registration import _swap

    _swap.swap(module)


class _Finder(MetaPathFinder):
    """Finds the modules where the others find them, and has their loaders act."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is waited for; None for any other."""
        if fullname not in MODULES:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(Loader):
    """A module's own loader, followed by the action."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let the module's own loader create it."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, which sees its own loader, then act on it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if _finder in sys.meta_path:
            _act(module)

    # Any: tools that ask a spec for its source or data get what the module's own loader has.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


_finder: Final = _Finder()
