"""Import finder for `lightning_habana`, and its names, which import their package on first use (PEP 562)."""

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hpu_compat import _names
from hpu_core.import_hooks import ImportHook
from hpu_core.lazy_exports import lazy_attributes

_ROOT: Final = "lightning_habana"
_DISTRIBUTION: Final = "lightning-habana"


def check_conflict() -> None:
    """Raise an ImportError if the real `lightning-habana` is installed, whose files have the same names.

    pip installs one over the other without an error and leaves a mixture of both.
    """
    # Imported here because it takes as long as the rest of this package, which `import torch` imports.
    from importlib import metadata

    try:
        version = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return
    from hpu_core.install_hints import install_command

    raise ImportError(
        f"{_DISTRIBUTION} {version} must not be installed together with hpu-compat, because their files overwrite each "
        f"other: pip uninstall --yes {_DISTRIBUTION} hpu-compat && {install_command('hpu-compat')}",
        name=_ROOT,
    )


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


def attributes(module: str, names: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module of `lightning_habana`, by its full name and its objects by name.

    The submodules are attributes too, because the archived package imported them eagerly.
    """
    files = (file.name for file in pkgutil.iter_modules(getattr(sys.modules[module], "__path__", ())))
    exported = (other.rpartition(".") for other in _names.EXPORTED)
    submodules = [*files, *(name for parent, _, name in exported if parent == _relative_name(module))]
    getters: dict[str, Callable[[], object]] = {
        **{name: functools.partial(importlib.import_module, f"{module}.{name}") for name in submodules},
        **{name: functools.partial(load, target, f"{module}.{name}") for name, target in names.items()},
    }
    return lazy_attributes(module, getters)


class _Finder(ImportHook):
    """Import hook that finds and loads the modules itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that only re-exports names, None for any other module.

        Raises:
            ImportError: The real package is installed, and its files may have overwritten those of this one.
        """
        del target
        if fullname == _ROOT:
            check_conflict()
        if fullname not in self.modules or path is None:
            return None
        folder = Path(next(iter(path)), fullname.rpartition(".")[2])
        is_package = folder.is_dir() or any(other.startswith(f"{fullname}.") for other in self.modules)
        spec = ModuleSpec(fullname, self, is_package=is_package)  # type: ignore[arg-type] # Python needs no base class.
        if is_package:
            # The folder holds the modules that are files.
            spec.submodule_search_locations = [str(folder)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation of the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Give a new module its names."""
        name = _relative_name(module.__name__)
        exports = _names.exports(name)
        get, list_names = attributes(module.__name__, {**exports, **_names.UNEXPORTED.get(name, {})})
        vars(module).update(__all__=sorted(exports), __getattr__=get, __dir__=list_names)
        module.__doc__ = "Re-exports of the archived package."


def _relative_name(module: str) -> str:
    """Return the part after `lightning_habana.`; the empty string for the package itself and any other module."""
    root, _, name = module.partition(".")
    return name if root == _ROOT else ""


finder: Final = _Finder({f"{_ROOT}.{name}" for name in _names.EXPORTED})
