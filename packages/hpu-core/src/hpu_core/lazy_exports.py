"""Lazy public names of a package (PEP 562), for hpu-core and the packages that build on it.

Importing such a package imports no torch, no Lightning and no bridge. Type checkers do not run `__getattr__`, so the
package repeats its names in imports under `if TYPE_CHECKING` and in `__all__`.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping


def lazy_exports(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: `__name__` of the package.
        modules: Public names by the full name of the module that defines them.
    """
    names = ((name, module) for module, names in modules.items() for name in names)
    return lazy_attributes(package, {name: functools.partial(_load, module, name) for name, module in names})


def lazy_attributes(
    module: str, getters: Mapping[str, Callable[[], object]], fallback: Callable[[str], object] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module.

    Args:
        module: Name of the module in `sys.modules`.
        getters: Functions that return the value of a name, called when it is first used.
        fallback: The module's own `__getattr__`, called for other names.
    """

    def get(name: str) -> object:
        if name not in getters:
            if fallback is not None:
                return fallback(name)
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getters[name]()
        # Python calls `__getattr__` only for names that are not in the module's namespace.
        setattr(sys.modules[module], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *getters})

    return get, list_names


def _load(module: str, name: str) -> object:
    value: object = getattr(importlib.import_module(module), name)
    return value
