"""Puts subclasses in the place of Lightning's connectors, functions in that of others, and Lightning's own back."""

import logging
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_core.registration import _callbacks, _connectors, _hook, _profilers

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_core.frameworks import FrameworkName

_log = logging.getLogger(__name__)

# What takes the place of which name; each is given the original and the framework's name.
_MAKERS: "Final[dict[str, Callable[[Any, FrameworkName], Any]]]" = {
    "_AcceleratorConnector": _connectors.for_trainer,
    "_Connector": _connectors.for_fabric,
    "_init_profiler": _profilers.initializer,
    "_plugin_to_compute_dtype": _callbacks.compute_dtype,
    "get_available_flops": _callbacks.available_flops,
    "is_oom_error": _callbacks.out_of_memory,
}


@dataclass(frozen=True, slots=True)
class _Swap:
    """What was done to one name in one module."""

    module: ModuleType
    name: str
    original: Any


_done: Final[list[_Swap]] = []


def swap(module: ModuleType) -> None:
    """Replace what a module of Lightning's defines that decides about accelerators, there and where it is used.

    Leaves a Lightning alone that is made otherwise than the known ones, and logs why. Its version is looked at when a
    Trainer is made: finding it out takes longer than all of this.
    """
    framework = _hook.MODULES[module.__name__]
    for name, make in _MAKERS.items():
        if name not in vars(module):
            continue
        original = getattr(module, name)
        try:
            replacement = make(original, framework)
        except NotImplementedError as error:
            _log.warning("%s will not know Gaudi cards by name: %s", framework, error)
            continue
        _replace(name, original, replacement, _root(module.__name__))


def undo() -> None:
    """Put back everything that was replaced, in all modules and registries."""
    from hpu_core.registration import _registries

    while _done:
        done = _done.pop()
        setattr(done.module, done.name, done.original)
    _registries.undo()


def _replace(name: str, original: Any, replacement: Any, root: str) -> None:
    """Replace an object by another in every module of a framework that has it by its name.

    Where Lightning was imported before hpu_core, its Trainer has taken the connector over already.
    """
    for place, loaded in list(sys.modules.items()):
        # Not everything in there is a module.
        if _root(place) == root and getattr(loaded, "__dict__", {}).get(name) is original:
            _done.append(_Swap(loaded, name, original))
            setattr(loaded, name, replacement)


def _root(module: str) -> str:
    return module.partition(".")[0]
