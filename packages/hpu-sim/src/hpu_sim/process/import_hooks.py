"""Import hooks: call a function after a module's import, and import torch before the bridge.

The folder of the bridge joins ``sys.path`` when torch brings the device. A program that starts with ``import
habana_frameworks.torch`` therefore needs torch imported first. On a card the bridge itself imports torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: Top-level packages of the bridge.
BRIDGE_PACKAGES: Final = frozenset({"habana_frameworks", "intel_transformer_engine", "torch_hpu"})

#: Folder of the simulated bridge, which joins ``sys.path`` when the device is up.
BRIDGE_FOLDER: Final = Path(__file__).parents[1] / "bridge"

_executing: Final[set[str]] = set()


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call ``callback`` once, after a module's import, or now if the module is imported already.

    Args:
        name: Full name of the module.
        callback: Function to call. The import raises what it raises.
    """
    if name in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _PostImportFinder(name, callback))


def is_executing(name: str) -> bool:
    """Return whether a module of :func:`after_import` executes, so that its callback is still to come.

    Args:
        name: Full name of the module.
    """
    return name in _executing


def is_installed() -> bool:
    """Return whether :func:`import_torch_before_bridge` was called."""
    return any(isinstance(finder, _BridgeFinder) for finder in sys.meta_path)


def import_torch_before_bridge() -> None:
    """Import torch, and with it the device, when a program imports the bridge first."""
    # Last, so that a real bridge is found by the other finders.
    sys.meta_path.append(_BridgeFinder())


class _PostImportFinder(MetaPathFinder):
    """Finder of one module, which wraps the loader that the other finders give it."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback
        self._is_searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module with a wrapped loader; None for any other module."""
        del path, target
        if fullname != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _PostImportLoader(spec.loader, self._on_imported)
        return spec

    def _on_imported(self) -> None:
        # Removed only now, because a program may ask for the spec several times before the import.
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback()


class _PostImportLoader(Loader):
    """Wrapper of a module's loader that calls a function after the import."""

    def __init__(self, loader: Loader, callback: Callable[[], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with its own loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, which sees its own loader, then call the function."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        _executing.add(module.__name__)
        try:
            self._loader.exec_module(module)
        finally:
            _executing.discard(module.__name__)
        self._callback()


class _BridgeLoader(_PostImportLoader):
    """Wrapper of the loader of ``habana_frameworks`` that imports torch, and with it the device, first."""

    def exec_module(self, module: ModuleType) -> None:
        """Import torch, then execute the module."""
        importlib.import_module("torch")
        super().exec_module(module)


class _BridgeFinder(MetaPathFinder):
    """Finder of the bridge for a program that has not imported torch yet."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a package of the bridge; None for any other package, or if torch is imported already."""
        del path
        # During the import of torch the simulator itself searches for a real bridge.
        if fullname not in BRIDGE_PACKAGES or "torch" in sys.modules or importlib.util.find_spec("torch") is None:
            return None
        if fullname != "habana_frameworks":
            importlib.import_module("torch")
            return PathFinder.find_spec(fullname, None, target)
        # Programs such as Ray's daemons only ask whether the bridge is installed, which must not take seconds.
        spec = PathFinder.find_spec(fullname, [str(BRIDGE_FOLDER)], target)
        if spec is not None and spec.loader is not None:
            spec.loader = _BridgeLoader(spec.loader, lambda: None)
        return spec
