"""Module `__getattr__` functions that import a name on first use (PEP 562)."""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hpu_core.lazy_exports import lazy_attributes

__all__ = ["is_installed", "lazy_getattr", "load"]


def lazy_getattr(
    module: str,
    targets: Mapping[str, str] | None = None,
    names: Iterable[str] = (),
    *,
    submodules: Iterable[str] = (),
    computed: Mapping[str, Callable[[], object]] | None = None,
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module.

    Args:
        module: Name of the module.
        targets: Objects by name, as "module:name".
        names: Names of the module; those without a target are ignored.
        submodules: Submodules to import on attribute access, as the archived package imported them eagerly.
        computed: Functions that compute the value of a name on first use.
    """
    getters = dict(computed or {})
    for name in names:
        if targets is not None and name in targets:
            getters[name] = functools.partial(load, targets[name], f"{module}.{name}")
    for name in submodules:
        getters[name] = functools.partial(importlib.import_module, f"{module}.{name}")

    return lazy_attributes(module, getters)


def load(target: str, name: str) -> Any:
    """Import an object, given as "module:name", for a name that the user has requested.

    Raises:
        ModuleNotFoundError: The package of the object is not installed.
    """
    module, _, attribute = target.partition(":")
    package = module.partition(".")[0]
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != package:
            # The package itself is installed and raises for one of its own requirements.
            raise
        from hpu_core import plugins

        raise plugins.not_installed_error(f"`{name}`", package.replace("_", "-")) from None


def is_installed(module: str) -> bool:
    """Return whether a top-level module can be found, without importing it."""
    return importlib.util.find_spec(module) is not None
