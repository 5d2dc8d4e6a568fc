"""Lightning 1.x's names for Gaudi on Lightning 2.0 to 2.6.

Lightning 2.0 has classes with these names that do not work with current bridges. From 2.1 on, its module
`_graveyard.hpu` adds stubs that raise, as the last step of `import lightning.pytorch`. `patch` removes both and gives
each module a `__getattr__` (PEP 562) that imports the class from its current package. Other objects with one of these
names stay. Lightning before 2.0 is not patched, because its own classes work.

Only this module and `_hook` use Lightning's private names for this: `_graveyard`, and the modules of the classes.
"""

import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_compat import _conflict, _lazy, _targets

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

_log = logging.getLogger(__name__)

# Names by module of Lightning. The last five modules defined the classes; from Lightning 2.1 on, these are aliases of
# the module of the stubs.
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "accelerators": ("HPUAccelerator",),
    "plugins": ("HPUCheckpointIO", "HPUPrecisionPlugin"),
    "plugins.io": ("HPUCheckpointIO",),
    "plugins.precision": ("HPUPrecisionPlugin",),
    "profilers": ("HPUProfiler",),
    "strategies": ("HPUParallelStrategy", "SingleHPUStrategy"),
    "accelerators.hpu": ("HPUAccelerator",),
    "plugins.io.hpu_plugin": ("HPUCheckpointIO",),
    "plugins.precision.hpu": ("HPUPrecisionPlugin",),
    "strategies.hpu_parallel": ("HPUParallelStrategy",),
    "strategies.single_hpu": ("SingleHPUStrategy",),
}

# Modules whose classes may be replaced: that of the stubs, and those of Lightning 2.0's classes.
_STUBS: Final = "_graveyard.hpu"
_REPLACEABLE_MODULES: Final = frozenset({_STUBS, *(module for module in NAMES if "hpu" in module)})

_MISSING: Final = object()

# Original values by module and name, including "__getattr__".
_originals: Final[dict[tuple[ModuleType, str], Any]] = {}


def patch(root: str, framework: "FrameworkName") -> None:
    """Add the names to an imported package of a framework, "lightning.pytorch" for one; do nothing before 2.0."""
    if not _is_supported(sys.modules.get(root)):
        return
    for module_name, names in NAMES.items():
        module = sys.modules.get(f"{root}.{module_name}")
        if module is not None:
            for name in names:
                _patch_name(module, name, root, framework)


def unpatch() -> None:
    """Restore the original values."""
    for (module, name), original in _originals.items():
        if original is _MISSING:
            # The name is present only if it was used.
            vars(module).pop(name, None)
        else:
            setattr(module, name, original)
    _originals.clear()


def _is_supported(package: ModuleType | None) -> bool:
    """Return whether a package of Lightning, possibly partially imported, is 2.0 or newer."""
    # Imported here because it takes as long as the rest of this module; Lightning imports it anyway.
    from packaging.version import InvalidVersion, Version

    try:
        return Version(str(getattr(package, "__version__", None))) >= Version("2.0.dev0")
    except InvalidVersion:
        return False


def _patch_name(module: ModuleType, name: str, root: str, framework: "FrameworkName") -> None:
    """Replace a name by a lazy import; further calls do nothing."""
    value = vars(module).get(name, _MISSING)
    if not _is_replaceable(value, root):
        if (module, name) not in _originals:
            _log.warning("%s.%s is Lightning's own and is not replaced", module.__name__, name)
        return
    if (module, "__getattr__") not in _originals:
        original_getattr = vars(module).get("__getattr__", _MISSING)
        _originals[module, "__getattr__"] = original_getattr
        vars(module)["__getattr__"] = _make_getattr(module, framework, original_getattr)
    if value is not _MISSING or (module, name) not in _originals:
        _originals[module, name] = value
        vars(module).pop(name, None)


def _is_replaceable(value: Any, root: str) -> bool:
    """Return whether a value is missing, one of Lightning's stubs or a class of Lightning 2.0."""
    if value is _MISSING:
        return True
    return isinstance(value, type) and value.__module__.removeprefix(f"{root}.") in _REPLACEABLE_MODULES


def _make_getattr(module: ModuleType, framework: "FrameworkName", original: Any) -> Callable[[str], Any]:
    """Return a `__getattr__` that falls back on the module's original one."""

    def get(name: str) -> Any:
        if (module, name) not in _originals:
            if original is not _MISSING:
                return original(name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        value = _load(name, module, framework)
        setattr(module, name, value)
        return value

    return get


def _load(name: str, module: ModuleType, framework: "FrameworkName") -> Any:
    """Import the class behind a name.

    Raises:
        ImportError: This process uses the other framework, or the real `lightning-habana` is installed.
        ModuleNotFoundError: The package of the class is not installed.
    """
    from hpu_core import frameworks

    _conflict.check()
    current = frameworks.current().name
    if current != framework:
        raise ImportError(
            f"`{module.__name__}.{name}` is unavailable, because the Gaudi packages use {current} in this process and "
            f"not {framework}: import only one of them, or set {frameworks.OVERRIDE}={framework}",
            name=module.__name__,
        )
    return _lazy.load(_targets.TRAINER[name], f"{module.__name__}.{name}")
