"""Module `__getattr__` functions that import a name on first use (PEP 562)."""

import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hpu_compat import _targets
from hpu_core.lazy_exports import lazy_attributes

__all__ = ["is_installed", "lazy_getattr", "load"]


def lazy_getattr(
    module: str,
    names: Iterable[str] = (),
    *,
    targets: Mapping[str, str] = _targets.TRAINER,
    computed: Mapping[str, Callable[[], object]] | None = None,
    submodules: Iterable[str] = (),
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module, or for a package and its submodules.

    The archived package imported the submodules eagerly, so programs use them as attributes.

    Args:
        module: Name of the module.
        names: Names of the module; those without a target are ignored.
        targets: Objects by name, as "module:name"; by default those for the Trainer.
        computed: Functions that compute the value of a name on first use.
        submodules: Names of submodules that are no files.
    """
    getters = dict(computed or {})
    for name in names:
        if name in targets:
            getters[name] = functools.partial(load, targets[name], f"{module}.{name}")
    files = (name for _, name, _ in pkgutil.iter_modules(getattr(sys.modules[module], "__path__", ())))
    for name in (*submodules, *files):
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
