"""Acts on modules once they have been imported, whoever imports them."""

import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

__all__ = ["PostImportHook"]


# Neither class derives from importlib's abstract ones: to make a subclass of those takes as long as much of what
# hpu-core does at `import torch`.
class PostImportHook:
    """Calls a function with each of some modules when it is complete, before whoever imports it goes on.

    It finds them where the other finders do. Several of these may wait for the same module.

    Args:
        modules: Their names.
        act: Is given the module. What it raises is raised by the import.
    """

    def __init__(self, modules: Collection[str], act: Callable[[ModuleType], object]) -> None:
        self._modules = modules
        self._act = act

    @property
    def is_installed(self) -> bool:
        """Whether modules are waited for."""
        return self in sys.meta_path

    def install(self) -> None:
        """Act on what has been imported, and from now on on what will be. Calling it again does nothing.

        A module whose import has begun and not ended is acted on as it is, and not again.
        """
        if self.is_installed:
            return
        sys.meta_path.insert(0, self)
        for name in self._modules:
            module = sys.modules.get(name)
            # Under the name of a module that it has no more, Lightning leaves another one, of stubs.
            if module is not None and module.__name__ == name:
                self.act(module)

    def remove(self) -> None:
        """Wait for none of them any more."""
        if self.is_installed:
            sys.meta_path.remove(self)

    def act(self, module: ModuleType) -> None:
        """Act on a module, unless they are waited for no more."""
        if self.is_installed:
            self._act(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is waited for; None for any other."""
        if fullname not in self._modules:
            return None
        # Those before it have been asked already.
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :] if self.is_installed else ()
        for finder in finders:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = cast("Any", _Loader(spec.loader, self))
                return spec
        return None


class _Loader:
    """A module's own loader, followed by the action."""

    def __init__(self, loader: Any, finder: PostImportHook) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let the module's own loader create it."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, which sees its own loader, then act on it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._finder.act(module)

    # Any: tools that ask a spec for its source or data get what the module's own loader has.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
