"""Lazy public names of a package (PEP 562), for hpu-core and the packages that build on it.

Importing such a package imports no torch, no Lightning and no bridge. Type checkers do not run `__getattr__`, so the
package repeats its names in imports under `if TYPE_CHECKING` and in `__all__`.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping

__all__ = ["lazy_exports"]


def lazy_exports(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: `__name__` of the package.
        modules: Public names by the full name of the module that defines them.
    """
    name_to_module = {name: module for module, names in modules.items() for name in names}

    def module_getattr(name: str) -> object:
        if name not in name_to_module:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(name_to_module[name]), name)
        # Python calls `__getattr__` only for names that are not in the package's namespace.
        setattr(sys.modules[package], name, value)
        return value

    def module_dir() -> list[str]:
        return sorted({*vars(sys.modules[package]), *name_to_module})

    return module_getattr, module_dir
