"""Names that a module fetches from where they are when they are first used (PEP 562)."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Fetch = Callable[[str], object]
List = Callable[[], list[str]]


def fetching(
    module: str,
    targets: Mapping[str, str],
    names: Iterable[str],
    *,
    submodules: Iterable[str] = (),
    found_out: Mapping[str, Callable[[], object]] | None = None,
) -> tuple[Fetch, List]:
    """Return `__getattr__` and `__dir__` for a module.

    Args:
        module: The module's name.
        targets: Where things are, by name, as "module:name".
        names: Those of them that the module has.
        submodules: Modules below it, which the archived package had imported by then.
        found_out: Functions that find out what a name stands for, by name.
    """
    functions = dict(found_out or {})
    for name in names:
        if name in targets:
            functions[name] = _loader(targets[name], f"{module}.{name}")
    for name in submodules:
        functions[name] = _importer(f"{module}.{name}")

    def fetch(name: str) -> object:
        if name not in functions:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = functions[name]()
        # Kept in the module's namespace, so that the next use does not come here again.
        setattr(sys.modules[module], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[module]), *functions})

    return fetch, listed


def load(target: str, name: str) -> Any:
    """Import what "module:name" stands for.

    Args:
        target: That.
        name: By which the user asked for it.

    Raises:
        ModuleNotFoundError: The package that it is in is not installed.
    """
    module, _, attribute = target.partition(":")
    package = module.partition(".")[0]
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != package:
            # Something that the package itself needs: it says what.
            raise
        from hpu_core import plugins

        raise plugins.not_installed_error(f"`{name}`", package.replace("_", "-")) from None


def is_installed(module: str) -> bool:
    """Tell whether a top-level module can be found, which is not imported for it."""
    return importlib.util.find_spec(module) is not None


def _loader(target: str, name: str) -> Callable[[], object]:
    return lambda: load(target, name)


def _importer(module: str) -> Callable[[], object]:
    return lambda: importlib.import_module(module)
