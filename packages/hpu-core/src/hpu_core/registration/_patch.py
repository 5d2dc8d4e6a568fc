"""Replacement of Lightning's connectors and functions."""

import functools
import logging
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_core.registration import _cli, _connectors, _functions, _undo

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

_log = logging.getLogger(__name__)

# Mixins for a subclass of the original, and functions called with the original, its framework and its arguments.
_REPLACEMENTS: Final[Mapping[str, type | Callable[..., Any]]] = {
    "_AcceleratorConnector": _connectors.TrainerConnectorMixin,
    "_Connector": _connectors.FabricConnectorMixin,
    "_clone_tensor": _functions.clone_tensor,
    "_get_num_processes": _cli.get_num_processes,
    "_init_profiler": _functions.init_profiler,
    "_log_device_info": _functions.log_device_info,
    "_plugin_to_compute_dtype": _functions.plugin_to_compute_dtype,
    "get_available_flops": _functions.get_available_flops,
    "is_oom_error": _functions.is_oom_error,
}

_HINTS: Final = dict.fromkeys(("_AcceleratorConnector", "_Connector"), _connectors.HintMixin)


def patch(module: ModuleType) -> None:
    """Replace the names that a module of Lightning defines, in that module and in all modules that imported them.

    An original that does not fit the known versions stays, and a warning is logged. The version of Lightning itself is
    checked when a Trainer is constructed, because reading it takes longer than all of this.

    Args:
        module: The defining module.
    """
    framework = _framework(module)
    if module.__name__.endswith("fabric.cli"):
        _cli.extend_options(module, framework)
    elif module.__name__.endswith(".cli"):
        _cli.load_classes(framework)
    _replace_all(module, framework, _REPLACEMENTS)


def patch_hints(module: ModuleType) -> None:
    """Extend the errors of a connector on a machine without a device; see `_connectors.HintMixin`.

    Args:
        module: The module that defines the connector.
    """
    _replace_all(module, _framework(module), _HINTS)


def make_replacement(original: Any, framework: "FrameworkName", replacement: "type | Callable[..., Any]") -> Any:
    """Return the object that takes the place of a class or function of Lightning.

    Args:
        original: The class or function.
        framework: The framework that it belongs to.
        replacement: A value of `_REPLACEMENTS`.

    Raises:
        NotImplementedError: A connector lacks a method that the known versions of Lightning have.
    """
    if isinstance(replacement, type):
        return _connectors.subclass(original, framework, replacement)
    return functools.update_wrapper(functools.partial(replacement, original, framework), original)


def _replace_all(
    module: ModuleType, framework: "FrameworkName", replacements: "Mapping[str, type | Callable[..., Any]]"
) -> None:
    for name in vars(module).keys() & replacements.keys():
        original = getattr(module, name)
        try:
            new = make_replacement(original, framework, replacements[name])
        except NotImplementedError as error:
            _log.warning("HPU is not registered with %s: %s", framework, error)
            continue
        root = _root(module.__name__)
        _replace(root, name, original, new)
        _undo.stack.callback(_replace, root, name, new, original)


def _replace(root: str, name: str, old: Any, new: Any) -> None:
    """Replace an object in every module below `root` that has it under `name`.

    Modules have references of their own, such as `trainer.trainer` to the connector.
    """
    for module_name, module in list(sys.modules.items()):
        # sys.modules may hold objects without a `__dict__`.
        if _root(module_name) == root and getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)


def _framework(module: ModuleType) -> "FrameworkName":
    return "lightning" if _root(module.__name__) == "lightning" else "pytorch_lightning"


def _root(module: str) -> str:
    return module.partition(".")[0]
