"""Import hooks: actions that run when any code imports a module."""

import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast


# Plain classes: subclassing importlib's abstract base classes would double the time that `import torch` spends here.
class ImportHook:
    """Meta path finder that wraps the execution of some modules.

    The other finders locate the modules. Several hooks may wrap the same module. Subclasses override `execute`.

    Args:
        modules: Full names of the modules.
    """

    def __init__(self, modules: Collection[str]) -> None:
        self.modules = modules

    @property
    def is_installed(self) -> bool:
        """Whether the hook is in `sys.meta_path`."""
        return self in sys.meta_path

    def install(self) -> None:
        """Put the hook first in `sys.meta_path`, unless it is there already."""
        if not self.is_installed:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Remove the hook from `sys.meta_path`."""
        if self.is_installed:
            sys.meta_path.remove(self)

    def execute(self, module: ModuleType, exec_module: Callable[[ModuleType], object]) -> None:
        """Run the code of a new module, which is still empty, by `exec_module(module)`."""
        exec_module(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module to wrap, None for any other module."""
        if fullname not in self.modules:
            return None
        # The finders in front of this one have returned None already.
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :] if self.is_installed else ()
        specs = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Any", _Loader(spec.loader, self))
        return spec


class PostImportHook(ImportHook):
    """Import hook that calls a function with each of some modules once it is complete.

    Args:
        modules: Full names of the modules.
        callback: Called with the module, before the importing code continues. Its exceptions propagate to the import.
    """

    def __init__(self, modules: Collection[str], callback: Callable[[ModuleType], object]) -> None:
        super().__init__(modules)
        self._callback = callback

    def install(self) -> None:
        """Call the function for modules that are imported already, and from now on for each that is imported.

        A second call does nothing. The function is called once for a module whose import is in progress.
        """
        if self.is_installed:
            return
        super().install()
        for name in self.modules:
            module = sys.modules.get(name)
            # Lightning aliases removed modules to modules of stubs, which have another `__name__`.
            if module is not None and module.__name__ == name:
                self._callback(module)

    def execute(self, module: ModuleType, exec_module: Callable[[ModuleType], object]) -> None:
        """Run a module, then call the function."""
        exec_module(module)
        # A spec outlives the hook that made it.
        if self.is_installed:
            self._callback(module)


class _Loader:
    """Loader that delegates to a module's own loader and executes the module through the hook."""

    def __init__(self, loader: Any, hook: ImportHook) -> None:
        self._loader = loader
        self._hook = hook

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with its own loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own loader, then execute the module."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._hook.execute(module, self._loader.exec_module)

    # Any: `get_source`, `get_data` and the like are those of the module's own loader.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
