"""Lightning 1.x's names for Gaudi on Lightning 2.0 to 2.6.

Lightning 2.0 has classes with these names that do not work with current bridges. From 2.1 on, its module
`_graveyard.hpu` adds stubs that raise, as the last step of `import lightning.pytorch`. `patch` removes both and gives
each module a `__getattr__` (PEP 562) that imports the class from its current package. Other objects with one of these
names stay.

Only this module uses Lightning's private names for this: `_graveyard`, and the modules of the classes. On machines with
an HPU or the simulator, every `import torch` imports it.
"""

import functools
import logging
import sys
from types import ModuleType
from typing import Any, Final

from hpu_compat import _finder, _names
from hpu_core.import_hooks import PostImportHook
from hpu_core.lazy_exports import lazy_attributes

_log = logging.getLogger(__name__)

# Frameworks by the name of their package that has the names.
_ROOTS: Final = {"lightning.pytorch": "lightning", "pytorch_lightning": "pytorch_lightning"}

# The last module that Lightning imports, and the one of the stubs.
_LAST_MODULE: Final = "_graveyard"
_STUBS: Final = f"{_LAST_MODULE}.hpu"

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
_STUB_MODULES: Final = frozenset({_STUBS, *(module for module in NAMES if "hpu" in module)})

_MISSING: Final = object()

# Original values by name, including "__getattr__", by the full name of a patched module.
_originals: Final[dict[str, dict[str, Any]]] = {}


def patch(lightning: ModuleType) -> None:
    """Add the names to Lightning, given its package or its last module; further calls do nothing."""
    root = lightning.__name__.removesuffix(f".{_LAST_MODULE}")
    for module_name, names in NAMES.items():
        module = f"{root}.{module_name}"
        if module not in sys.modules or module in _originals:
            continue
        namespace = vars(sys.modules[module])
        replaced = [name for name in names if _is_stub(namespace.get(name, _MISSING), root)]
        for name in set(names) - set(replaced):
            _log.warning("%s.%s is Lightning's own and is not replaced", module, name)
        originals = {name: namespace.pop(name, _MISSING) for name in ("__getattr__", *replaced)}
        _originals[module] = originals
        getters = {name: functools.partial(_load, name, module, _ROOTS[root]) for name in replaced}
        other = originals["__getattr__"]
        namespace["__getattr__"] = lazy_attributes(module, getters, fallback=None if other is _MISSING else other)[0]


def unpatch() -> None:
    """Restore the original values."""
    # Newest first, since some modules are the same.
    while _originals:
        module, originals = _originals.popitem()
        for name, original in originals.items():
            if original is not _MISSING:
                setattr(sys.modules[module], name, original)
            else:
                # The name is present only if it was used.
                vars(sys.modules[module]).pop(name, None)


def _is_stub(value: Any, root: str) -> bool:
    """Return whether a value is missing, one of Lightning's stubs or a class of Lightning 2.0."""
    if value is _MISSING:
        return True
    return isinstance(value, type) and value.__module__.removeprefix(f"{root}.") in _STUB_MODULES


def _load(name: str, module: str, framework: str) -> Any:
    """Import the class behind a name.

    Raises:
        ImportError: This process uses the other framework, or the real `lightning-habana` is installed.
        ModuleNotFoundError: The package of the class is not installed.
    """
    from hpu_core import frameworks

    _finder.check_conflict()
    current = frameworks.current().name
    if current != framework:
        raise ImportError(
            f"`{module}.{name}` is unavailable, because the Gaudi packages use {current} in this process and not "
            f"{framework}: import only one of them, or set {frameworks.OVERRIDE}={framework}",
            name=module,
        )
    return _finder.load(_names.exports("pytorch")[name], f"{module}.{name}")


# `pytorch_lightning` imports torch, which installs this hook when the import of the package itself has already started.
# Its last module is still to come. The packages are listed for a Lightning without that module.
hook: Final = PostImportHook({*_ROOTS, *(f"{root}.{_LAST_MODULE}" for root in _ROOTS)}, patch)
