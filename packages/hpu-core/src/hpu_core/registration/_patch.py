"""Replacement of Lightning's connectors and functions, and its reversal."""

import logging
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_core.registration import _connectors, _fabric_cli, _functions, _hints, _registries

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_core.frameworks import FrameworkName

_log = logging.getLogger(__name__)

# Factories of replacements by the name that they replace, called with the original and the framework's name.
_REPLACEMENTS: "Final[dict[str, Callable[[Any, FrameworkName], Any]]]" = {
    "_AcceleratorConnector": _connectors.trainer_connector,
    "_Connector": _connectors.fabric_connector,
    "_clone_tensor": _functions.clone_tensor,
    "_get_num_processes": _fabric_cli.get_num_processes,
    "_init_profiler": _functions.init_profiler,
    "_log_device_info": _functions.log_device_info,
    "_plugin_to_compute_dtype": _functions.plugin_to_compute_dtype,
    "get_available_flops": _functions.get_available_flops,
    "is_oom_error": _functions.is_oom_error,
}

_HINTS: "Final[dict[str, Callable[[Any, FrameworkName], Any]]]" = {
    "_AcceleratorConnector": _hints.connector,
    "_Connector": _hints.connector,
}


@dataclass(frozen=True, slots=True)
class _Patch:
    """One replaced name in the modules below one root."""

    root: str
    name: str
    original: Any
    replacement: Any


_patches: Final[list[_Patch]] = []


def patch(module: ModuleType, framework: "FrameworkName") -> None:
    """Replace a name that a module of Lightning defines, in that module and in all modules that imported it.

    An original that does not fit the known versions stays, and a warning is logged. The version of Lightning itself is
    checked when a Trainer is constructed, because reading it takes longer than all of this.

    Args:
        module: The defining module.
        framework: The framework that it belongs to.
    """
    _patch(module, framework, _REPLACEMENTS)


def patch_hints(module: ModuleType, framework: "FrameworkName") -> None:
    """Extend the errors of a connector on a machine without a device; see `_hints`.

    Args:
        module: The module that defines the connector.
        framework: The framework that it belongs to.
    """
    _patch(module, framework, _HINTS)


def unpatch() -> None:
    """Restore every replaced name, and Lightning's registries."""
    while _patches:
        applied = _patches.pop()
        _replace(applied.root, applied.name, applied.replacement, applied.original)
    _fabric_cli.restore()
    _registries.restore()


def _patch(
    module: ModuleType, framework: "FrameworkName", replacements: "dict[str, Callable[[Any, FrameworkName], Any]]"
) -> None:
    for name, make_replacement in replacements.items():
        if name not in vars(module):
            continue
        original = getattr(module, name)
        try:
            replacement = make_replacement(original, framework)
        except NotImplementedError as error:
            _log.warning("HPU is not registered with %s: %s", framework, error)
            continue
        root = _root(module.__name__)
        _replace(root, name, original, replacement)
        _patches.append(_Patch(root, name, original, replacement))


def _replace(root: str, name: str, old: Any, new: Any) -> None:
    """Replace an object in every module below `root` that has it under `name`.

    Modules have references of their own, such as `trainer.trainer` to the connector.
    """
    for module_name, module in list(sys.modules.items()):
        # sys.modules may hold objects without a `__dict__`.
        if _root(module_name) == root and getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)


def _root(module: str) -> str:
    return module.partition(".")[0]
