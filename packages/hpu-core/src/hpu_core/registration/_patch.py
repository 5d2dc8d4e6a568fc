"""Replacement of Lightning's connectors and functions, and its reversal."""

import logging
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_core.registration import _connectors, _functions, _registries

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_core.frameworks import FrameworkName

_log = logging.getLogger(__name__)

# Factories of replacements by the name that they replace, called with the original and the framework's name.
_REPLACEMENTS: "Final[dict[str, Callable[[Any, FrameworkName], Any]]]" = {
    "_AcceleratorConnector": _connectors.trainer_connector,
    "_Connector": _connectors.fabric_connector,
    "_clone_tensor": _functions.clone_tensor,
    "_init_profiler": _functions.init_profiler,
    "_log_device_info": _functions.log_device_info,
    "_plugin_to_compute_dtype": _functions.plugin_to_compute_dtype,
    "get_available_flops": _functions.get_available_flops,
    "is_oom_error": _functions.is_oom_error,
}


@dataclass(frozen=True, slots=True)
class _Patch:
    """One replaced name in one module."""

    module: ModuleType
    name: str
    original: Any


_patches: Final[list[_Patch]] = []


def patch(module: ModuleType, framework: "FrameworkName") -> None:
    """Replace a name that a module of Lightning defines, in that module and in all modules that imported it.

    An original that does not fit the known versions stays, and a warning is logged. The version of Lightning itself is
    checked when a Trainer is constructed, because reading it takes longer than all of this.

    Args:
        module: The defining module.
        framework: The framework that it belongs to.
    """
    for name, make_replacement in _REPLACEMENTS.items():
        if name not in vars(module):
            continue
        original = getattr(module, name)
        try:
            replacement = make_replacement(original, framework)
        except NotImplementedError as error:
            _log.warning("HPU is not registered with %s: %s", framework, error)
            continue
        _replace(name, original, replacement, _root(module.__name__))


def unpatch() -> None:
    """Restore every replaced name, and Lightning's registries."""
    while _patches:
        applied = _patches.pop()
        setattr(applied.module, applied.name, applied.original)
    _registries.restore()


def _replace(name: str, original: Any, replacement: Any, root: str) -> None:
    """Replace an object in every module below `root` that has it under `name`.

    If Lightning was imported before hpu_core, `trainer.trainer` has its own reference to the connector.
    """
    for module_name, module in list(sys.modules.items()):
        # sys.modules may hold objects without a `__dict__`.
        if _root(module_name) == root and getattr(module, "__dict__", {}).get(name) is original:
            _patches.append(_Patch(module, name, original))
            setattr(module, name, replacement)


def _root(module: str) -> str:
    return module.partition(".")[0]
