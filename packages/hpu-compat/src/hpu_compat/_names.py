"""Lightning's names for Gaudi of version 1.x, on Lightning 2.0 to 2.6.

Up to 2.0 Lightning had classes by these names, which do not work with current bridges. From 2.1 on it has stubs, which
its module `_graveyard.hpu` puts there as the last thing of `import lightning.pytorch`, and which can only raise an
error. So, once that is done, both are taken away, and each module gets a `__getattr__` (PEP 562) that fetches the name
from the package that has it now. Anything else that Lightning may have by one of these names some day stays.

Before 2.0 the classes are what programs mean by the names, and nothing is done.

This module and `_hook` alone know Lightning's private names for it: `_graveyard`, and where the classes were defined.
"""

import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_compat._hook import ROOTS

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

_log = logging.getLogger(__name__)

# What each module of Lightning's offers. The last five are where the classes were defined; from Lightning 2.1 on, all
# five are the module of the stubs.
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

# Where a class is defined that may be taken away: a stub, or one of Lightning 2.0's.
_STUBS: Final = "_graveyard.hpu"
_DEFINED_IN: Final = frozenset({_STUBS, *(module for module in NAMES if "hpu" in module)})

_ABSENT: Final = object()

# What Lightning had by each name that is offered, and by "__getattr__", in each module.
_originals: Final[dict[tuple[ModuleType, str], Any]] = {}


def offer(root: str) -> None:
    """Offer the names in a package of Lightning's that has been imported; before 2.0, do nothing.

    Args:
        root: A key of `ROOTS`.
    """
    if not _is_known(sys.modules.get(root)):
        return
    for place, names in NAMES.items():
        found = sys.modules.get(f"{root}.{place}")
        if found is not None:
            for name in names:
                _offer(found, name, root)


def restore() -> None:
    """Put back what was there."""
    for (module, name), original in _originals.items():
        if original is _ABSENT:
            # What was fetched, if anything.
            vars(module).pop(name, None)
        else:
            setattr(module, name, original)
    _originals.clear()


def _is_known(package: ModuleType | None) -> bool:
    """Tell whether a package of Lightning's, maybe half imported, is of a version that this module is for."""
    # As costly as the rest of this module, and loaded by Lightning anyway.
    from packaging.version import InvalidVersion, Version

    try:
        return Version(str(getattr(package, "__version__", None))) >= Version("2.0.dev0")
    except InvalidVersion:
        return False


def _offer(module: ModuleType, name: str, root: str) -> None:
    """Have a module fetch a name from the package that has it. Doing it again does nothing."""
    present = vars(module).get(name, _ABSENT)
    if not _may_go(present, root):
        if (module, name) not in _originals:
            _log.warning("%s.%s is Lightning's own and stays", module.__name__, name)
        return
    if (module, "__getattr__") not in _originals:
        previous = vars(module).get("__getattr__", _ABSENT)
        _originals[module, "__getattr__"] = previous
        vars(module)["__getattr__"] = _fetcher(module, ROOTS[root], previous)
    if present is not _ABSENT or (module, name) not in _originals:
        _originals[module, name] = present
        vars(module).pop(name, None)


def _may_go(present: Any, root: str) -> bool:
    """Tell whether there is nothing by a name, or a stub of Lightning's, or a class of Lightning 2.0's."""
    if present is _ABSENT:
        return True
    return isinstance(present, type) and present.__module__.removeprefix(f"{root}.") in _DEFINED_IN


def _fetcher(module: ModuleType, framework: "FrameworkName", previous: Any) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module that may have one already."""

    def fetch(name: str) -> Any:
        if (module, name) not in _originals:
            if previous is not _ABSENT:
                return previous(name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        value = _load(name, module, framework)
        setattr(module, name, value)
        return value

    return fetch


def _load(name: str, module: ModuleType, framework: "FrameworkName") -> Any:
    """Import what is behind a name.

    Raises:
        ImportError: It cannot be used with this framework in this process, or the real `lightning-habana` is installed.
        ModuleNotFoundError: The package that has it is not installed.
    """
    from hpu_compat import _behind, _beside, _lazy
    from hpu_core import frameworks

    _beside.check()
    current = frameworks.current().name
    if current != framework:
        raise ImportError(
            f"the Gaudi packages use {current} in this process, and `{module.__name__}.{name}` would be {framework}'s: "
            f"import one of the two only, or set {frameworks.OVERRIDE}={framework}",
            name=module.__name__,
        )
    return _lazy.load(_behind.TRAINER[name], f"{module.__name__}.{name}")
