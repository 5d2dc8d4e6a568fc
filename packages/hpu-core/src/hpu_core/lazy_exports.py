"""Public names that a package fetches from their modules when they are first used (PEP 562).

For hpu-core and the packages beside it, whose import has to load no torch, no Lightning and no bridge. A type checker
reads the imports below `if TYPE_CHECKING` instead, which is why they and `__all__` say the same once more.
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
        package: The package's `__name__`.
        modules: Its modules by their full names, and which public names each of them has.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def fetch(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(homes[name]), name)
        # Kept in the package's namespace, so that the next use does not come here again.
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        # For tab completion, before a name is lazy_exports and after it.
        return sorted({*vars(sys.modules[package]), *homes})

    return fetch, listed
