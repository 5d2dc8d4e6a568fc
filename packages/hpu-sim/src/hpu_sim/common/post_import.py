"""Import hook that calls a function after a module's import."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_loading: Final[set[str]] = set()


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call ``callback`` once, after a module's import, or now if the module is imported already.

    Args:
        name: Full name of the module.
        callback: Function to call. The import raises what it raises.
    """
    if name in sys.modules:
        callback()
        return
    for finder in sys.meta_path:
        # One finder per name: each searches all others, which would take exponential time.
        if isinstance(finder, _PostImportFinder) and finder.name == name:
            finder.callbacks.append(callback)
            return
    sys.meta_path.insert(0, _PostImportFinder(name, callback))


def is_loading(name: str) -> bool:
    """Return whether a module of :func:`after_import` executes, so that its callback is still to come."""
    return name in _loading


class _PostImportFinder(MetaPathFinder):
    """Finder of one module, which wraps the loader that the other finders give it."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self.callbacks = [callback]
        self._in_search = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module with a wrapped loader; None for any other module."""
        del path, target
        if fullname != self.name or self._in_search:
            return None
        self._in_search = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._in_search = False
        if spec is not None and spec.loader is not None:
            spec.loader = WrappedLoader(spec.loader, self._on_imported)
        return spec

    def _on_imported(self) -> None:
        # Removed only now, because a program may ask for the spec several times before the import.
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            for callback in self.callbacks:
                callback()


class WrappedLoader(Loader):
    """Wrapper of a module's loader that calls a function after the import.

    Args:
        loader: The module's loader.
        callback: Function to call; the import raises what it raises.
    """

    def __init__(self, loader: Loader, callback: Callable[[], None] = lambda: None) -> None:
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
        _loading.add(module.__name__)
        try:
            self._loader.exec_module(module)
        finally:
            _loading.discard(module.__name__)
        self._callback()
